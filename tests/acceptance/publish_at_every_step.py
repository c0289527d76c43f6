"""Strike a whole job at every file operation from its last commit to its result, and resume it.

A program of its own, since it forks: ``publish_at_every_step.py FOLDER HOW FIRST STRIDE [FORMAT]``
strikes in one of the ways that `reaper` knows. Says what went wrong, and exits with 0 when nothing
did.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import distributed  # noqa: F401 - once, before the forks
import pandas as pd

import daskprs
from daskprs._cluster import cluster_slots  # noqa: F401 - the same
from tests.support.datasets import text_of
from tests.support.every_step import STRUCK, at_every_step
from tests.support.reaper import Reaper

ROWS = pd.DataFrame({"n": [1, 2, 3]})
WHOLE = b"1\n2\n3\n"
LAST_COMMIT_IS_DONE = b'["complete"'


FORMAT: Any = sys.argv[5] if len(sys.argv) > 5 else "text"


def published(base: Path) -> bytes | None:
    """Return the rows of the output as text; None without one."""
    target = target_of(base)
    if not target.exists():
        return None
    return target.read_bytes() if FORMAT == "text" else text_of(target)


def target_of(base: Path) -> Path:
    """Return the output."""
    return base / "out" / f"parallel_run_step.{'txt' if FORMAT == 'text' else FORMAT}"


def job(base: Path, *, resume: bool) -> str:
    """Run the job, and return its status; what is raised has to carry it."""
    try:
        result = daskprs.parallel_run(
            ROWS,
            pd.DataFrame.copy,
            job_dir=base / "job",
            output_dir=base / "out",
            process_count_per_node=1,
            progress=False,
            resume=resume,
            output_format=FORMAT,
        )
    except (daskprs.ParallelRunFailed, daskprs.ParallelRunCanceled) as error:
        return "" if error.result is None else error.result.status
    assert result.output_file is not None
    return result.status


def in_a_child(base: Path, nth: int | None, how: str = "", *, resume: bool = False) -> str:
    """Run the job in a fork, and return what it says of itself; nothing when it was killed."""
    said = base / "said"
    pid = os.fork()
    if pid == 0:
        try:
            if nth is not None:
                Reaper(nth, how, base / STRUCK, begin=LAST_COMMIT_IS_DONE)
            status = job(base, resume=resume)
            said.write_text(status)
        except BaseException:  # noqa: BLE001 - the fork must never go on
            said.write_text(traceback.format_exc())
        finally:
            os._exit(0)
    ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if ended == -signal.SIGKILL:
        return ""
    status = said.read_text()
    said.unlink()
    return status


def strike(base: Path, nth: int, how: str) -> None:
    """Let a job be struck at its n-th operation, see what is there and what it says, resume it."""
    target = target_of(base)
    status = in_a_child(base, nth, how)
    there = published(base)
    assert there in {None, WHOLE}, "half a file"
    if how == "kill":
        assert status in {"", "Completed"}, status
    else:
        ended = "Canceled" if how.startswith("interrupt") else "Failed"
        assert status == (ended if there is None else "Completed"), f"{there!r}, and {status}"
    if how == "interrupt":
        assert f"The job is {status}" in (base / "job" / "logs" / "job_result.txt").read_text()
        assert there is None or not list((base / "job").glob("spool.*")), "a spool is left"
    if how == "EIO" and there is not None and list((base / "job").glob("spool.*")):
        log = (base / "job" / "logs" / "sys" / "master_role.txt").read_text()
        assert f"{target} is published. What it was made of is kept" in log
    assert in_a_child(base, None, resume=True) == "Completed", "no resume"
    assert published(base) == WHOLE
    assert [path.name for path in target.parent.iterdir()] == [target.name], "something is left"
    assert "The job is Completed" in (base / "job" / "logs" / "job_result.txt").read_text()


def main(base: Path, how: str, first: int, stride: int) -> None:
    """Go through the steps."""
    at_every_step(base, how, first, stride, lambda folder, nth: strike(folder, nth, how))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
