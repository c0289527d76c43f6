"""A virtual environment that is made of a specification: the plan, and its making."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from daskprs._agent.foreign.main import OLDEST
from daskprs._system.interpreter import NoInterpreter, environment_of, facts_of, interpreter_at
from daskprs.errors import DaskprsError, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs.azure._environments.specification import Specification

FOLDER = "daskprs-environments"
VERSIONS = (
    os.path.join(os.environ.get("PYENV_ROOT", "~/.pyenv"), "versions"),  # noqa: PTH118 - text
    "~/.local/share/uv/python",
)
"""Folders of interpreters that are not on the PATH, by version."""
MINOR = range(30, 5, -1)
"""Minor versions of Python 3 that are looked for, the newest first."""
STDERR = 2
LINES = "requirements.txt"
"""The file in the environment with the lines that pip was given."""
UNCHECKED = (
    "Names of conda are taken as they are, unless another is shown: see that the index of pip has "
    "the same packages by these names."
)


class FoundPython(NamedTuple):
    """An interpreter of this machine."""

    path: str
    version: str


@dataclass(frozen=True)
class NewEnvironment:
    """A virtual environment that is to be made."""

    asked: Specification
    name: str
    folder: Path
    python: FoundPython

    @classmethod
    def planned(
        cls,
        asked: Specification,
        *,
        name: str | None = None,
        folder: str | None = None,
        python: str | None = None,
    ) -> NewEnvironment:
        """Return the environment, after every check that costs little.

        A folder that is in use is an OptionError, and so is an interpreter that does not fit.
        """
        name = name or asked.name
        place = Path(folder or Path(FOLDER, re.sub(r"[^\w.-]+", "-", name))).absolute()
        if place.exists() and not (place.is_dir() and not any(place.iterdir())):
            msg = (
                f"{place} exists. Use it as it is, by --environment {name}={place}; remove it; or "
                "name another folder by --to."
            )
            raise OptionError(msg)
        return cls(asked, name, place, _python(asked, python))

    @property
    def requirements(self) -> list[str]:
        """The lines that pip is given."""
        own = [one.requirement for one in self.asked.packages if one.requirement]
        return [*own, *self.asked.lines]

    def lines(self) -> Iterator[str]:
        """Yield the plan for people."""
        asked, python = self.asked, self.python
        yield f"{self.name}: a virtual environment in {self.folder}"
        wish = f", for {asked.python}" if asked.python else ""
        fits = (
            "" if asked.versions.contains(python.version, prereleases=True) else ", which differs"
        )
        yield f"  Python {python.version} ({python.path}){wish}{fits}"
        if tuple(map(int, python.version.split(".")[:2])) < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            yield f"    entry scripts need Python {oldest} or newer: --python names another one"
        for one in asked.packages:
            if one.requirement:
                was = f"  (conda: {one.conda})" if one.conda != one.requirement else ""
                yield f"  pip installs {one.requirement}{was}"
                if one.note:
                    yield f"    {one.note}"
        yield from (f"  pip installs {line}" for line in asked.lines)
        for one in asked.packages:
            if not one.requirement:
                yield f"  not installed: {one.conda}: {one.note}"
        yield from (f"  without effect: {one}" for one in asked.ignored)
        if any(one.requirement and not one.has_other_name for one in asked.packages):
            yield f"  {UNCHECKED}"

    def make(self) -> None:
        """Make it; what is half made is removed.

        Where venv or pip fails, a DaskprsError has what it has written, or follows it.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._make_venv()
            if self.requirements:
                self._install()
        except BaseException:  # half an environment would be taken for one
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def _make_venv(self) -> None:
        program = [self.python.path, "-m", "venv", str(self.folder)]
        environment = environment_of(self.python.path, os.environ)
        done = subprocess.run(  # noqa: S603 - the interpreter that the person names
            program, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            shown = (done.stdout + done.stderr).strip()
            msg = f"{' '.join(program)} ended with {done.returncode}:\n{shown}"
            raise DaskprsError(msg)

    def _install(self) -> None:
        """Run the new environment's own pip, which shows its progress on stderr."""
        python = str(self.folder / "bin" / "python")
        file = self.folder / LINES
        file.write_text("".join(f"{line}\n" for line in self.requirements))
        program = [python, "-m", "pip", "install", "--disable-pip-version-check", "-r", str(file)]
        done = subprocess.run(  # noqa: S603 - pip of the new environment
            program,
            cwd=self.asked.base,
            env=environment_of(python, os.environ),
            stdout=STDERR,
            check=False,
        )
        if done.returncode:
            msg = (
                f"pip could not install this, and {self.folder} is removed: its reason is above. "
                "Where a package has another name or version in the index of pip, write a file of "
                "pip's requirements, and give that. A version that is older than this Python has "
                "no wheels for it: --python names another one."
            )
            raise DaskprsError(msg)


def _python(asked: Specification, given: str | None) -> FoundPython:
    """Return the given interpreter, or one that fits; this one before others."""
    if given is not None:
        try:
            path = interpreter_at(given)
            return FoundPython(path, _version(path))
        except NoInterpreter as error:
            msg = f"--python {given}: {error}."
            raise OptionError(msg) from error
    found = []
    for one in _pythons():
        if asked.versions.contains(one.version, prereleases=True):
            return one
        found.append(one)
    known = ", ".join(f"{one.version} ({one.path})" for one in found)
    msg = (
        f"{asked.python} is asked for, and here is Python {known}. Install one that fits, as by "
        "pyenv or uv, or name one by --python: another version may do."
    )
    raise OptionError(msg)


def _pythons() -> Iterator[FoundPython]:
    """Yield this Python, those of the PATH and those of pyenv and uv, each version once."""
    seen = set()
    names = [*(f"python3.{minor}" for minor in MINOR), "python3", "python"]
    places = [Path(one).expanduser().glob("*/bin/python") for one in VERSIONS]
    for path in (sys.executable, *map(shutil.which, names), *map(str, chain(*places))):
        if path is None:
            continue
        try:
            version = _version(path)
        except NoInterpreter:
            continue
        if version not in seen:
            seen.add(version)
            yield FoundPython(path, version)


def _version(path: str) -> str:
    return ".".join(map(str, facts_of(path, os.environ).version))
