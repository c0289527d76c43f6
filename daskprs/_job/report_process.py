"""The process that writes the report of a job, after the result is out."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from daskprs._core.ending import JobStatus
from daskprs._folders.job_folder import JobFolder
from daskprs._folders.job_lock import has_begun, latest_epoch
from daskprs._system.regular_files import append_regular
from daskprs.errors import DaskprsError

if TYPE_CHECKING:
    from daskprs._job.result import ParallelRunResult

LONG_S = 10.0
"""Seconds of work after which a job gets a report, though nothing has failed."""
NICENESS = 10


def start_report(folder: JobFolder, when: str, result: ParallelRunResult) -> None:
    """Start a process that writes the report of a job, if the job is to have one.

    The process goes on when this one ends. Nothing waits for it, and nothing fails with it.
    """
    went_well = result.status == JobStatus.COMPLETED and result.items.failed == result.not_returned
    is_quick = went_well and result.elapsed_s < LONG_S
    if when == "never" or (when == "auto" and is_quick) or not has_begun(folder):
        return
    with suppress(OSError, RuntimeError):  # no more processes or threads
        process = subprocess.Popen(  # noqa: S603 - this interpreter
            [sys.executable, "-m", __name__, str(folder)],
            # The first entry of the path of modules: there this very package is found.
            cwd=Path(__file__).parents[2],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        threading.Thread(target=process.wait, name="daskprs-report", daemon=True).start()


def _write(folder: JobFolder) -> None:
    """Write the report; an error is written where the errors of daskprs itself are."""
    from daskprs._job.report import report_of, write_page
    from daskprs._job.result import RUNNING

    try:
        run, contents = latest_epoch(folder), report_of(folder)
        # Another run may be at work by now, or over: the page would tell of what was before.
        if contents.standing.status != RUNNING and latest_epoch(folder) == run:
            write_page(contents, folder.report)
    except (DaskprsError, FileNotFoundError):  # the folder is gone
        return
    except Exception:  # noqa: BLE001 - there is nobody to raise it to
        log = folder.own_error("report")
        with suppress(OSError, DaskprsError):
            log.parent.mkdir(exist_ok=True)
            with append_regular(log) as file:
                traceback.print_exc(file=file)


if __name__ == "__main__":
    os.nice(NICENESS)
    _write(JobFolder(sys.argv[1]))
