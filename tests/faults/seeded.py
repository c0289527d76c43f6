"""Seed faults, one at a time, and say whether the tests find them: exits with 1 if one stays.

``seeded.py [--any FILES] [FAULT …]``: a fault is a patch beside this file, which breaks one promise
of the package. Each is applied to a copy of the package, and the test that the patch names is run.
With ``--any``, all tests of these files are run, to find out which of them fails first. With
``--simulation``, seeds of the simulation are played in place of a test, 10,000 at most.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.faults.by_seeds import functions_called, is_driven, played_until_found

HERE = Path(__file__).parent
HOME = HERE.parents[1]
COPIED = ("daskprs", "tests", "pyproject.toml")
LINKED = (".venv", "benchmarks", "deploy", "docs", "examples")
"""What tests look at beside the package, and no fault changes."""
MOST_S = 600
FAILED = 1
"""The exit code of pytest when tests have run and some failed."""


class Fault(NamedTuple):
    """A patch that breaks a promise, and the quickest test that finds it."""

    patch: Path
    promise: str
    found_by: str
    changed: tuple[str, ...]
    """The files that the patch changes, below the home of the project."""

    @property
    def name(self) -> str:
        """The name by which people call the fault."""
        return self.patch.stem


class Run(NamedTuple):
    """What pytest said."""

    code: int
    output: str
    seconds: float

    @property
    def failed(self) -> str:
        """The first test that failed; empty where none did, whatever else went wrong."""
        found = re.search(r"^(?:FAILED|ERROR) (\S+::\S+)", self.output, re.MULTILINE)
        return found[1] if found and self.code == FAILED else ""


def read_fault(patch: Path) -> Fault:
    """Read the head of a patch; raise `ValueError` if it lacks the promise or the test."""
    head, _, diff = patch.read_text().partition("\n--- ")
    lines = [line.removeprefix("#").strip() for line in head.splitlines()]
    promise = " ".join(line for line in lines if not line.startswith("Found by:"))
    tests = [line.partition(":")[2].strip() for line in lines if line.startswith("Found by:")]
    changed = tuple(re.findall(r"^\+\+\+ b/(\S+)", diff, re.MULTILINE))
    if not promise or len(tests) != 1 or not changed:
        form = "begins with `# PROMISE`, then `# Found by: TEST`, then a diff of a/ and b/."
        msg = f"{patch}: a fault {form}"
        raise ValueError(msg)
    return Fault(patch, promise, tests[0], changed)


def all_faults() -> list[Fault]:
    """Return all faults, by name."""
    return [read_fault(patch) for patch in sorted(HERE.glob("*.patch"))]


def apply(fault: Fault, folder: Path) -> str:
    """Apply a fault to the files in a folder; return why that failed, or an empty text.

    No fuzz: a patch that only nearly fits would break another promise than it says.
    """
    # Inside a clone, git would look for the paths from the root of the clone, and find none.
    environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(folder.resolve().parent)}
    words = ["git", "apply", "--whitespace=nowarn", str(fault.patch.resolve())]
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return ""
    return f"{fault.patch}: it does not apply. Write the same fault anew.\n{done.stderr.strip()}"


def copied(folder: Path) -> None:
    """Copy what tests need; files keep their times, so that Python need not compile them again."""
    for name in COPIED:
        source = HOME / name
        if source.is_dir():
            shutil.copytree(source, folder / name, symlinks=True)
        else:
            shutil.copy2(source, folder / name)
    for name in LINKED:
        if (HOME / name).exists():
            (folder / name).symlink_to(HOME / name)


def run_tests(folder: Path, *tests: str) -> Run:
    """Run tests with the package in a folder, up to the first failure."""
    paths = [str(folder), os.environ.get("PYTHONPATH")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        # A patched file may have the size and, by the second, the time of the last one.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-m", "not long"]
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=MOST_S,
    )
    return Run(done.returncode, done.stdout, time.monotonic() - begun)


def check_import(folder: Path) -> None:
    """Make sure that tests in a folder import the package of this folder."""
    words = [sys.executable, "-c", "import daskprs; print(daskprs.__file__)"]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    if not Path(done.stdout.strip()).is_relative_to(folder):
        sys.exit(f"the tests would import {done.stdout.strip()}, not the copy in {folder}")


def try_fault(fault: Fault, folder: Path, files: list[str]) -> bool:
    """Run tests with a fault in place, take it out again, and say whether they found it."""
    try:
        if problem := apply(fault, folder):
            print(problem, flush=True)
            return False
        ran = run_tests(folder, *(files or [fault.found_by]))
    finally:
        for name in fault.changed:
            shutil.copy2(HOME / name, folder / name)
    if not ran.failed:
        print(f"NOT FOUND: {fault.name}\n{fault.promise}\n{ran.output[-2000:]}", flush=True)
        return False
    print(f"found: {fault.name}, by {ran.failed}, in {ran.seconds:.1f} s", flush=True)
    return True


def named_faults(names: list[str]) -> list[Fault]:
    """Return the faults of these names, all if there is none."""
    faults = [fault for fault in all_faults() if not names or fault.name in names]
    if unknown := {*names} - {fault.name for fault in faults}:
        sys.exit(f"no patch in {HERE} is called {', '.join(sorted(unknown))}")
    return faults


def simulate(names: list[str], most: int) -> int:
    """Say after how many seeds the simulation finds each fault, and return the exit code."""
    with tempfile.TemporaryDirectory(prefix="daskprs-faults-") as made:
        folder = Path(made).resolve()
        copied(folder)
        check_import(folder)
        called = functions_called(folder)
        for fault in named_faults(names):
            try:
                if problem := apply(fault, folder):
                    sys.exit(problem)
                if is_driven(fault.changed, HOME, folder, called):
                    seeds, found = played_until_found(folder, most)
                    how = f"after {seeds:,} seeds: {found}" if found else f"not by {seeds:,} seeds"
                else:
                    how = "seeds do not call what it changes"
            finally:
                for name in fault.changed:
                    shutil.copy2(HOME / name, folder / name)
            print(f"{fault.name}: {how}", flush=True)
    return 0


def main(names: list[str], files: list[str]) -> int:
    """Try faults, all if none is named, and return the exit code."""
    faults = named_faults(names)
    with tempfile.TemporaryDirectory(prefix="daskprs-faults-") as made:
        folder = Path(made).resolve()
        copied(folder)
        check_import(folder)
        tests = files or sorted({fault.found_by for fault in faults})
        ran = run_tests(folder, *tests)
        if ran.code:
            print(f"a test fails without a fault: {ran.failed}\n{ran.output[-4000:]}", flush=True)
            return 1
        print(f"without a fault, all tests pass, {ran.seconds:.1f} s", flush=True)
        found = [try_fault(fault, folder, files) for fault in faults]
    print(f"{sum(found)} of {len(found)} faults are found", flush=True)
    return 0 if all(found) else 1


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("faults", nargs="*", metavar="FAULT", help="the name of a patch; none: all")
    words.add_argument("--any", nargs="+", default=[], metavar="FILE", help="run these test files")
    words.add_argument("--simulation", action="store_true", help="play seeds in place of tests")
    words.add_argument("--seeds", type=int, default=10_000, help="the most for one fault")
    given = words.parse_args()
    if given.simulation:
        sys.exit(simulate(given.faults, given.seeds))
    sys.exit(main(given.faults, given.any))
