"""Faults against the simulation: after how many seeds one breaks a promise."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

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


def functions_called(folder: Path) -> set[tuple[str, int]]:
    """Return the functions of the package in a folder that seeds call, by file and first line."""
    done = _run(folder, "-c", PROFILE, str(PROFILED_SEEDS))
    if done.returncode:
        sys.exit(f"no seeds can be played: {done.stderr[-2000:]}")
    return {(os.path.relpath(file, folder), line) for file, line in json.loads(done.stdout)}


def is_driven(patch: Path, home: Path, called: set[tuple[str, int]]) -> bool:
    """Say whether the simulation calls a function that a patch changes."""
    return any(place in called for place in _changed_functions(patch, home))


def _changed_functions(patch: Path, home: Path) -> list[tuple[str, int]]:
    """Return the file and the first line of each function with a changed line."""
    found, file, number = [], "", 0
    for line in patch.read_text().splitlines():
        if line.startswith("+++ b/"):
            file = line.removeprefix("+++ b/")
        elif head := re.match(r"@@ -(\d+)", line):
            number = int(head[1])
        elif line[:1] in ("-", "+") and not line.startswith("---"):
            found.append((file, _function_at(home / file, number)))
            number += line[0] == "-"
        else:
            number += 1
    return found


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
