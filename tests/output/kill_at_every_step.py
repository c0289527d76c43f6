"""Strike a driver at every file operation, resume, and compare with an undisturbed run.

A program of its own, since it forks: ``kill_at_every_step.py FOLDER HOW TIMES FIRST STRIDE``. A
driver is struck at its n-th operation, for every STRIDE-th n from FIRST on, in one of the ways that
`reaper` knows; with TIMES above 1 the one that resumes is struck at its n-th too, and so on. Says
what went wrong, and exits with 0 when nothing did.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from daskprs._folders.job_folder import JobFolder
from daskprs._output import spool
from daskprs._output.read_rows import read_rows
from daskprs._system.interrupts import LateInterrupts
from daskprs.errors import DaskprsError
from tests.support.every_step import STRUCK, at_every_step
from tests.support.reaper import REAL, Reaper
from tests.support.store_driver import (
    BOTH,
    Driver,
    driving,
    failed_outcome,
    frame_of,
    mini_batch,
    serial,
)

if TYPE_CHECKING:
    from collections.abc import Callable

MINI_BATCHES = 7
IN_THE_ORDER_IN_WHICH_THEY_COME = [3, 0, 1, 6, 5, 2]
GIVEN_UP_AT_FIRST = 4
CARRIED = 6
COMPLETED, NOT_COMPLETED = 0, 3
spool.WRITE_BYTES = 60  # the larger ones are written at once


def drive(base: Path, epoch: int) -> int:
    """Do the whole job, or what is left of it, as a job does it; return what it says of itself."""
    opened: list[Driver] = []
    late = LateInterrupts(lambda: bool(opened) and opened[0].store.done)
    try:
        with (
            late.ignored_once(),
            driving(base / "job", base / "out" / "rows.txt", BOTH, resume=epoch > 1) as driver,
        ):
            opened.append(driver)
            work(driver, base / "acknowledged", epoch)
    except (KeyboardInterrupt, OSError, DaskprsError):
        pass
    return COMPLETED if opened and opened[0].store.done else NOT_COMPLETED


def work(driver: Driver, acknowledged: Path, epoch: int) -> None:
    """Commit and publish; note each commit that was acknowledged."""
    noted = REAL["open"](acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    lost = [int(line) for line in acknowledged.read_text().split() if not driver.has(int(line))]
    assert not lost, f"acknowledged, and lost: {lost}"
    for index in IN_THE_ORDER_IN_WHICH_THEY_COME:
        if not driver.has(index):
            driver.store.attempt_failed(mini_batch(index), failed_outcome(index), final=False)
            commit = driver.commit_carried if index == CARRIED else driver.commit
            commit(index, frame_of(index))
            REAL["write"](noted, f"{index}\n".encode())
            driver.store.sync_if_due(float(index))
    if epoch == 1:
        hopeless = failed_outcome(GIVEN_UP_AT_FIRST)
        driver.store.attempt_failed(mini_batch(GIVEN_UP_AT_FIRST), hopeless, final=True)
    elif not driver.has(GIVEN_UP_AT_FIRST):
        driver.commit(GIVEN_UP_AT_FIRST, frame_of(GIVEN_UP_AT_FIRST))
    driver.store.publish()


def in_a_child(work: Callable[[], int | None]) -> int:
    """Do something in a fork, and return its exit code; negative: the signal that ended it."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = work() or 0
        except BaseException:  # noqa: BLE001 - the fork must never go on
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def drive_until(nth: int, how: str, base: Path, epoch: int) -> int:
    """Drive, and be struck at the n-th operation."""
    Reaper(nth, how, base / f"{STRUCK}.{epoch}")
    return drive(base, epoch)


def check(base: Path) -> None:
    """Compare what is there in the end."""
    whole = range(MINI_BATCHES)
    out = base / "out"
    assert (out / "rows.txt").read_bytes() == serial(whole), "other bytes"
    assert [path.name for path in out.iterdir()] == ["rows.txt"], "something of ours is left"
    rows = read_rows(JobFolder(base / "job"))
    assert rows is not None
    assert rows.to_csv(sep=" ", header=False, index=False).encode() == serial(whole), "typed rows"
    assert not list((base / "job").glob("spool.*")), "the spool is left"


def standing(base: Path, epoch: int) -> bool:
    """Say whether the output of an epoch stands under its name; never half a one does."""
    target = base / "out" / "rows.txt"
    there = target.read_bytes() if target.exists() else None
    first = serial([index for index in range(MINI_BATCHES) if index != GIVEN_UP_AT_FIRST])
    whole = serial(range(MINI_BATCHES))
    assert there in {None, first, whole}, "half a file"
    return there == (first if epoch == 1 else whole)


def strike(nth: int, how: str, base: Path, epoch: int) -> None:
    """Let a driver be struck: what it says of itself has to be what is there."""
    stood = standing(base, epoch)
    code = in_a_child(partial(drive_until, nth, how, base, epoch))
    stands = standing(base, epoch)
    if code == -signal.SIGKILL:
        assert how == "kill"
        return
    assert code in {COMPLETED, NOT_COMPLETED}, f"exit code {code}"
    assert stands or code == NOT_COMPLETED, "Completed, and nothing is there"
    assert stood or not stands or code == COMPLETED, "not Completed, and the output is there"
    if how == "interrupt":
        assert not list((base / "out").glob(".*.part")), "half a file is left"
        assert code == NOT_COMPLETED or not list((base / "job").glob("spool.*")), "a spool is left"


def main(base: Path, how: str, times: int, first: int, stride: int) -> None:
    """Go through every step."""

    def play(folder: Path, nth: int) -> None:
        for epoch in range(1, times + 1):
            strike(nth, how, folder, epoch)
        assert in_a_child(partial(drive, folder, times + 1)) == COMPLETED, "no resume"
        assert in_a_child(partial(check, folder)) == 0

    at_every_step(base, how, first, stride, play)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
