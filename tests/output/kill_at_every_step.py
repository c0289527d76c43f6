"""Kill a driver at every file operation, resume, and compare with an undisturbed run.

A program of its own, since it forks: ``kill_at_every_step.py FOLDER TIMES STRIDE``. A driver is
killed at its n-th operation, for every n (or every STRIDE-th); with TIMES above 1 the one that
resumes is killed at its n-th too, and so on. Says what went wrong, and exits with 0 when nothing
did.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store_driver import BOTH, driving, failed_outcome, frame_of, mini_batch, serial

from daskprs.job_folder import JobFolder
from daskprs.output import sink
from daskprs.output.read_rows import read_rows

if TYPE_CHECKING:
    from collections.abc import Callable

MINI_BATCHES = 7
IN_THE_ORDER_IN_WHICH_THEY_COME = [3, 0, 1, 6, 5, 2]
GIVEN_UP_AT_FIRST = 4
WRITES = ("write", "pwrite", "copy_file_range")
OTHERS = ("fsync", "fdatasync", "replace", "unlink", "ftruncate", "open", "mkdir")
NOTE = os.write  # as it is without the reaper
sink.IN_MESSAGE_BYTES = 60  # the larger ones go through files


class Reaper:
    """Counts operations on files, and kills this process in the middle of the n-th."""

    def __init__(self, nth: int) -> None:
        self._left = nth
        for name in (*WRITES, *OTHERS):
            setattr(os, name, partial(self._step, name, getattr(os, name)))

    def _step(self, name: str, real: Callable[..., Any], *given: Any, **named: Any) -> Any:
        self._left -= 1
        if self._left == 0:
            if name == "copy_file_range":
                source, target, length, *places = given
                real(source, target, (length + 1) // 2, *places)
            elif name in WRITES:
                fd, piece, *place = given
                real(fd, memoryview(piece)[: (len(piece) + 1) // 2], *place)
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*given, **named)


def drive(base: Path, epoch: int) -> None:
    """Do the whole job, or what is left of it; note each commit that was acknowledged."""
    noted = os.open(base / "acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    indexes = IN_THE_ORDER_IN_WHICH_THEY_COME
    with driving(base / "job", base / "out" / "rows.txt", BOTH, resume=epoch > 1) as driver:
        acknowledged = {int(line) for line in (base / "acknowledged").read_text().split()}
        lost = [index for index in acknowledged if not driver.has(index)]
        assert not lost, f"acknowledged, and lost: {lost}"
        for index in indexes:
            if not driver.has(index):
                driver.store.attempt_failed(mini_batch(index), failed_outcome(index), final=False)
                driver.commit(index, frame_of(index))
                NOTE(noted, f"{index}\n".encode())
                driver.store.sync_if_due(float(index))
        if epoch == 1:
            hopeless = failed_outcome(GIVEN_UP_AT_FIRST)
            driver.store.attempt_failed(mini_batch(GIVEN_UP_AT_FIRST), hopeless, final=True)
        elif not driver.has(GIVEN_UP_AT_FIRST):
            driver.commit(GIVEN_UP_AT_FIRST, frame_of(GIVEN_UP_AT_FIRST))
        driver.store.publish()


def in_a_child(work: Callable[[], None]) -> int:
    """Do something in a fork, and return its exit code; negative: the signal that ended it."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - the fork must never go on
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def drive_until(nth: int, base: Path, epoch: int) -> None:
    """Drive, and die at the n-th operation."""
    Reaper(nth)
    drive(base, epoch)


def check(base: Path) -> None:
    """Compare what is there in the end."""
    whole = range(MINI_BATCHES)
    out = base / "out"
    assert (out / "rows.txt").read_bytes() == serial(whole), "other bytes"
    assert [path.name for path in out.iterdir()] == ["rows.txt"], "something of ours is left"
    rows = read_rows(JobFolder(base / "job"))
    assert rows is not None
    assert rows.to_csv(sep=" ", header=False, index=False).encode() == serial(whole), "typed rows"
    assert not list((base / "job" / "spill").iterdir()), "spilled files are left"
    assert not list((base / "job").glob("spool.*")), "the spool is left"


def half_a_file(base: Path) -> bool:
    """Say whether the output stands under its name without being whole."""
    target = base / "out" / "rows.txt"
    without = [index for index in range(MINI_BATCHES) if index != GIVEN_UP_AT_FIRST]
    return target.exists() and target.read_bytes() not in (
        serial(without),
        serial(range(MINI_BATCHES)),
    )


def main(base: Path, times: int, stride: int) -> None:
    """Go through every step."""
    nth, codes = 0, [-signal.SIGKILL]
    while codes[0] == -signal.SIGKILL:
        nth += stride
        folder = base / str(nth)
        folder.mkdir()
        codes = []
        for epoch in range(1, times + 1):
            codes.append(in_a_child(partial(drive_until, nth, folder, epoch)))
            if codes[-1] not in {0, -signal.SIGKILL} or half_a_file(folder):
                sys.exit(f"killed at operation {nth}, epoch {epoch}: exit code {codes[-1]}")
        if in_a_child(partial(drive, folder, times + 1)) or in_a_child(partial(check, folder)):
            sys.exit(f"resumed after being killed at operation {nth}: {codes}")
        shutil.rmtree(folder)
    print(f"{nth} operations")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
