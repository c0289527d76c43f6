"""Strike the rebuilding of a published output at every file operation, and go on.

A program of its own, since it forks: ``grow_at_every_step.py FOLDER HOW FIRST STRIDE``. A job has
published its output, without the rows of one mini-batch. Its input grows: the driver that extends
it is struck at its n-th operation, in one of the ways that `reaper` knows, and so is the one that
then retries what failed. Says what went wrong, and exits with 0 when nothing did.
"""

from __future__ import annotations

import signal
import sys
from functools import partial
from pathlib import Path

import pyarrow.parquet  # noqa: F401 - once, before the forks
from kill_at_every_step import COMPLETED, NOT_COMPLETED, in_a_child

from daskprs._folders.job_folder import JobFolder
from daskprs._output.read_rows import read_rows
from daskprs.errors import DaskprsError
from tests.support.every_step import STRUCK, at_every_step
from tests.support.growth import drive, serial, target_of
from tests.support.reaper import Reaper

AT_FIRST, FAILS, GROWN = "bdf", "d", "abcdefg"
STEPS = {"what is new": GROWN.replace(FAILS, ""), "what failed": GROWN}
"""What is run, and what is published then."""


def begin(base: Path) -> int:
    """Publish what does not fail at first."""
    drive(base, AT_FIRST, fails=FAILS)
    return COMPLETED


def go_on(base: Path, runs: str, nth: int | None, how: str) -> int:
    """Go on with the job, and be struck; return whether it came to its end."""
    if nth is not None:
        Reaper(nth, how, base / f"{STRUCK}.{runs}")
    try:
        drive(base, GROWN, runs)
    except (KeyboardInterrupt, OSError, DaskprsError):
        return NOT_COMPLETED
    return COMPLETED


def strike(base: Path, runs: str, before: str, nth: int, how: str) -> None:
    """Let a driver be struck, and another one come through: never half a file stands there."""
    code = in_a_child(partial(go_on, base, runs, nth, how))
    assert code in {COMPLETED, NOT_COMPLETED, -signal.SIGKILL}, f"exit code {code}"
    there = target_of(base).read_bytes()
    assert there in {serial(before), serial(STEPS[runs])}, "half a file, or none"
    assert there == serial(STEPS[runs]) or code != COMPLETED, "Completed, and the old output"
    assert in_a_child(partial(go_on, base, runs, None, "")) == COMPLETED, "no resume"
    assert target_of(base).read_bytes() == serial(STEPS[runs]), "other bytes"


def check(base: Path) -> None:
    """Compare what is there in the end."""
    rows = read_rows(JobFolder(base / "job"))
    assert rows is not None
    assert rows.to_csv(sep=" ", header=False, index=False).encode() == serial(GROWN), "typed rows"
    names = [path.name for path in target_of(base).parent.iterdir()]
    assert names == [target_of(base).name], "something of ours is left"
    assert not JobFolder(base / "job").failed.exists(), "something failed"


def main(base: Path, how: str, first: int, stride: int) -> None:
    """Go through every step."""

    def play(folder: Path, nth: int) -> None:
        assert in_a_child(partial(begin, folder)) == COMPLETED
        strike(folder, "what is new", AT_FIRST.replace(FAILS, ""), nth, how)
        assert JobFolder(folder / "job").failed.exists(), "it is not told what failed"
        strike(folder, "what failed", STEPS["what is new"], nth, how)
        assert in_a_child(partial(check, folder)) == 0

    at_every_step(base, how, first, stride, play)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
