"""Run published pipelines, batch deployments and notebooks of Azure, and say what came of each.

``python -m tests.by_hand.case [--root FOLDER] [--skip REGEX]... FILE... [-- OPTION...]``. Each
file runs in a copy of its folder, or of the ``--root`` above it: what stands in a clone stays as
it is. The options go to ``daskprs run`` or ``daskprs invoke``; relative paths in them belong to
the folder of the file. ``--skip`` is for cells of notebooks.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import yaml

from daskprs._core.ending import EXIT_USAGE
from daskprs.azure._file_kinds import kind_of
from tests.by_hand.notebook import code_of

ENDS = {0: "Completed", EXIT_USAGE: "refused"}


class Outcome(NamedTuple):
    """What came of a case: Completed, refused or failed, and the line that says why."""

    word: str
    line: str


def outcome_of(
    file: Path, root: Path | None = None, skip: tuple[str, ...] = (), options: tuple[str, ...] = ()
) -> Outcome:
    """Run a file in a copy of its folder."""
    root = (root or file.parent).resolve()
    with tempfile.TemporaryDirectory(prefix="case-") as place:
        shutil.copytree(root, Path(place, "case"), symlinks=True)
        copy = Path(place, "case", file.resolve().relative_to(root))
        done = subprocess.run(
            command_for(copy, skip, options),
            cwd=copy.parent,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, ["", *sys.path]))},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    line = _telling_line(done).replace(f"{copy.parent}/", "")
    return Outcome(ENDS.get(done.returncode, "failed"), line)


def command_for(file: Path, skip: tuple[str, ...], options: tuple[str, ...]) -> list[str]:
    """Return the command that runs a file of this kind."""
    if file.suffix == ".ipynb":
        return [sys.executable, "-c", code_of(file, list(skip))]
    kind = kind_of(yaml.safe_load(file.read_text()))
    verb = "invoke" if kind and "deployment" in kind.name else "run"
    return [sys.executable, "-m", "daskprs", verb, file.name, *options]


def _telling_line(done: subprocess.CompletedProcess[str]) -> str:
    """Return the first line of an error or a result, and the last of a notebook's traceback."""
    said = (done.stderr if done.returncode else done.stdout).strip().splitlines()
    errors = [
        line
        for line in said
        if line.startswith(("daskprs: ", "Error: ")) and "without effect here" not in line
    ]
    return (errors[:1] or said[-1:] if done.returncode else said[:1] or [""])[0]


def main() -> None:
    """Run the files one after another, and print a line for each."""
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path)
    parser.add_argument("--skip", action="append", default=[])
    parser.add_argument("files", nargs="+", type=Path)
    given = parser.parse_args(sys.argv[1:split])
    for file in given.files:
        came = outcome_of(file, given.root, tuple(given.skip), tuple(sys.argv[split + 1 :]))
        print(f"{file}: {came.word}: {came.line}", flush=True)


if __name__ == "__main__":
    main()
