"""Faults against the simulation: after how many seeds one breaks a promise."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

Place = tuple[str, int]
"""A function: its file, and its first line."""

PROFILED_SEEDS = 400
"""Seeds that say which functions of the package the simulation calls."""
PROFILE = """
import cProfile, json, pstats, sys
from tests.simulation.simulate import seeds_played
profile = cProfile.Profile()
profile.runcall(seeds_played, 0, int(sys.argv[1]))
json.dump([key[:2] for key in pstats.Stats(profile).stats if "daskprs" in key[0]], sys.stdout)
"""


class Verdict(NamedTuple):
    """What seeds have shown of a fault."""

    seeds: int
    """Seeds that were played, the one that found the fault included; 0 if none can find it."""
    found: str
    """The promise that was broken; empty where none was."""


def _run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def functions_called(folder: Path) -> set[Place]:
    """Return the functions of the package in a folder that seeds call, by file and first line."""
    done = _run(folder, "-c", PROFILE, str(PROFILED_SEEDS))
    if done.returncode:
        sys.exit(f"no seeds can be played: {done.stderr[-2000:]}")
    return {(os.path.relpath(file, folder), line) for file, line in json.loads(done.stdout)}


def is_driven(changed: Iterable[str], home: Path, folder: Path, called: set[Place]) -> bool:
    """Say whether the simulation calls a function that differs between two copies of files."""
    return any(
        (name, _function_at(home / name, number)) in called
        for name in changed
        for number in _changed_lines(home / name, folder / name)
    )


def _changed_lines(one: Path, other: Path) -> Iterator[int]:
    """Yield the numbers of the lines of a file that another one lacks, or before which it has more.

    The numbers in a patch do not say it: git also applies a patch some lines away from there.
    """
    before, after = one.read_text().splitlines(), other.read_text().splitlines()
    for kind, first, last, _, _ in SequenceMatcher(None, before, after, False).get_opcodes():
        if kind != "equal":
            yield from range(first + 1, max(last, first + 1) + 1)


def _function_at(file: Path, number: int) -> int:
    """Return the first line of the innermost function around a line; 0 where there is none."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    around = [
        min([node.lineno, *(one.lineno for one in node.decorator_list)])
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, kinds) and node.lineno <= number <= (node.end_lineno or 0)
    ]
    return max(around, default=0)


def played_until_found(folder: Path, most: int) -> Verdict:
    """Play seeds with the package in a folder until a promise is broken."""
    words = ("-m", "tests.simulation.simulate", str(most), "--until-found")
    done = _run(folder, *words, "--processes", "1")
    if found := re.search(r"^seed (\d+): (.*)", done.stdout, re.MULTILINE):
        return Verdict(int(found[1]) + 1, found[2])
    if done.returncode:  # it cannot even be imported, or ends the process
        return Verdict(1, done.stderr.strip()[-300:])
    return Verdict(most, "")
