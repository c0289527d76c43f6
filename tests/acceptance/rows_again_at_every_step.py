"""Strike a resume of failed rows at every file operation, and let another one go on.

A program of its own, since it forks: ``rows_again_at_every_step.py FOLDER HOW FIRST STRIDE NAME``
strikes in one of the ways that `reaper` knows; NAME is that of the output. Says what went wrong,
and exits with 0 when nothing did.
"""

from __future__ import annotations

import os
import shutil
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pandas as pd

import daskprs
from daskprs._folders.job_folder import JobFolder
from daskprs._job.verification import verify
from tests.support.every_step import STRUCK, at_every_step
from tests.support.reaper import Reaper

if TYPE_CHECKING:
    from collections.abc import Collection

ROWS = pd.DataFrame({"n": range(16)})
BAD = {1, 2, 11}
"""The rows that fail at first; one of them fails in the resume that is struck, too."""
STILL_BAD = {2}
BEGUN = b'["job"'
NAME = sys.argv[5] if len(sys.argv) > 5 else "rows.csv"


def job(
    base: Path, bad: Collection[int] = (), *, resume: Literal[False, "failed"] = False
) -> daskprs.ParallelRunResult:
    """Run the job in a folder, or what has failed in it; the script notes its rows."""

    def run(rows: pd.DataFrame) -> pd.DataFrame:
        with (base / "called").open("a") as file:
            file.write("".join(f"{n}\n" for n in rows["n"]))
        if {*rows["n"]} & {*bad}:
            raise ValueError
        return rows.assign(half=rows["n"] / 2)

    return daskprs.parallel_run(
        ROWS,
        run,
        mini_batch_size="8 rows",
        job_dir=base / "job",
        output=base / "out" / NAME,
        keep_rows=True,
        on_error="null",
        independent_rows=True,
        run_max_try=1,
        start_method="inline",
        progress=False,
        resume=resume,
    )


def published(base: Path) -> bytes:
    """Return the output."""
    return (base / "out" / NAME).read_bytes()


def in_a_child(base: Path, bad: Collection[int], nth: int | None = None, how: str = "") -> str:
    """Run what has failed in a fork; return what was raised, if anything was."""
    said = base / "said"
    pid = os.fork()
    if pid == 0:
        try:
            if nth is not None:
                Reaper(nth, how, base / STRUCK, begin=BEGUN)
            job(base, bad, resume="failed")
        except BaseException:  # noqa: BLE001 - the fork must never go on
            said.write_text(traceback.format_exc())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    return said.read_text() if said.exists() else ""


def strike(base: Path, note: Path, whole: bytes, nth: int, how: str) -> None:
    """Let a resume be struck at its n-th operation, and the next one heal all rows."""
    copy, it = base / "before", base / "it"
    shutil.rmtree(it, ignore_errors=True)
    shutil.copytree(copy, it)  # at the place that its journal names
    old = published(it)
    in_a_child(it, STILL_BAD, nth, how)
    if (it / STRUCK).exists():
        (it / STRUCK).rename(note)
    else:
        assert published(it) != old, "a resume that nothing has struck has done nothing"
    (it / "said").unlink(missing_ok=True)
    said = in_a_child(it, ())
    assert not said, said
    assert published(it) == whole, "other rows"
    called = {*map(int, (it / "called").read_text().split())}
    assert called <= BAD, f"good rows ran: {called}"
    folder = JobFolder(it / "job")
    assert not folder.failed_rows.exists(), "rows are listed still"
    assert verify(folder).findings == []


def main(base: Path, how: str, first: int, stride: int) -> None:
    """Go through the steps."""
    for name, bad in (("serial", set[int]()), ("it", BAD)):
        (base / name).mkdir()
        assert job(base / name, bad).status == "Completed"
        (base / name / "called").unlink()
    whole = published(base / "serial")
    (base / "it").rename(base / "before")
    at_every_step(
        base, how, first, stride, lambda folder, nth: strike(base, folder / STRUCK, whole, nth, how)
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
