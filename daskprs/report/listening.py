"""The listeners of a job."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from daskprs.report.logs.attempt_cells import AttemptCells
from daskprs.report.logs.attempts import AttemptTable
from daskprs.report.logs.driver_log import DriverLog
from daskprs.report.logs.job_logs import JobLogs
from daskprs.report.logs.log_files import LogFiles
from daskprs.report.logs.overview import Overview
from daskprs.report.logs.process_logs import ProcessLogs
from daskprs.report.logs.script_errors import ScriptErrors
from daskprs.report.logs.summaries import Summaries
from daskprs.report.progress.progress import progress_for

if TYPE_CHECKING:
    from daskprs.folders.job_folder import JobFolder
    from daskprs.report.listeners import Listener


def listeners_of(folder: JobFolder, progress: bool | None) -> list[Listener]:  # noqa: FBT001 - an option
    """Return the listeners of a job; `LogFiles`, which flushes the files, comes last."""
    files, cells = LogFiles(), AttemptCells()
    shown = progress_for(progress, sys.stderr, folder)
    first: list[Listener] = [] if shown is None else [shown]
    return [
        *first,
        JobLogs(folder),
        AttemptTable(folder, files, cells),
        ProcessLogs(folder, files, cells),
        ScriptErrors(folder, files),
        Summaries(folder),
        Overview(folder, files),
        DriverLog(folder, files),
        files,
    ]
