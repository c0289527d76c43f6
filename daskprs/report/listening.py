"""Who listens to a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs.report.attempts import AttemptTable
from daskprs.report.job_logs import JobLogs
from daskprs.report.lines import LogFiles
from daskprs.report.script_errors import ScriptErrors

if TYPE_CHECKING:
    from daskprs.job_folder import JobFolder
    from daskprs.report.listeners import Listener


def listeners_of(folder: JobFolder, progress: bool | None) -> list[Listener]:
    """Return the listeners of a job; the one that writes files out comes last."""
    files = LogFiles()
    return [AttemptTable(folder, files), ScriptErrors(folder, files), JobLogs(folder, files)]
