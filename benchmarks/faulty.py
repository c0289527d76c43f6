"""An entry script with which everything goes wrong: 1 % raise, one dies, one hangs.

When something happens is noted in a file of the run's folder, by the clock that all processes of
a machine share.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

NOTES_VARIABLE = "BENCHMARK_NOTES"
RUN_S = 0.003
TIMEOUT_S = 5
RAISES_AT, DIES_AT, HANGS_AT = 7, 10, 25
"""Of each hundred files one; of all of them one each, by hundredths of their number."""


def init() -> None:
    """Note that a process is up."""
    _note("init")


def run(paths: list[str]) -> list[str]:
    """Work a little, unless the name of a file says something else."""
    begin = time.monotonic()
    for path in paths:
        match _deed(path):
            case "raise":
                raise ValueError(path)
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                _note("hang")
                time.sleep(3600)
    time.sleep(RUN_S)
    return [f"{path.rpartition('/')[2]} {os.getpid()} {begin} {time.monotonic()}" for path in paths]


def _deed(path: str) -> str:
    """Return what a file's name asks for: ``000123.raise``."""
    return path.rpartition(".")[2]


def _note(what: str) -> None:
    with Path(os.environ[NOTES_VARIABLE]).open("a") as notes:
        notes.write(f"{what} {os.getpid()} {time.monotonic()}\n")
