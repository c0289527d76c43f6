"""``master_role.txt``: the log of the driver."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

from daskprs.core.events import JobEnded, JobStarted, MessageLogged, OutputPublished, SlotsChanged
from daskprs.report.humanize import Stamps, counted

if TYPE_CHECKING:
    from daskprs.core.events import Event
    from daskprs.folders.job_folder import JobFolder
    from daskprs.report.logs.log_files import LogFiles

NAMES_ONLY = "environment_variables"
"""Option whose names are logged without values: logs are passed on, and values may be tokens."""


class DriverLog:
    """Writes time, level, process id, thread and message of each event in the driver."""

    def __init__(self, folder: JobFolder, files: LogFiles) -> None:
        self._file = files.file(folder.master_log)
        self._stamps = Stamps()

    def tell(self, event: Event) -> None:
        """Write an event of the driver."""
        match event:
            case JobStarted():
                self._start(event)
            case SlotsChanged(nodes, slots):
                self._log("info", f"{counted(nodes, 'node')}, {counted(slots, 'slot')}")
            case MessageLogged(level, message):
                self._log(level, message)
            case OutputPublished(path, size_bytes):
                self._log("info", f"published {path}, {size_bytes} bytes")
            case JobEnded(ending=ending):
                level = "info" if not ending.reason else "error"
                self._log(level, f"job {ending.status}: {ending.reason}".rstrip(": "))

    def close(self) -> None:
        """Do nothing: `LogFiles` flushes the file."""

    def _start(self, event: JobStarted) -> None:
        verb = "resumes" if event.resumed else "starts"
        self._log("info", f"job {event.job_id} {verb}: {event.script}")
        for name, value in event.options.items():
            shown = list(value) if name == NAMES_ONLY and isinstance(value, dict) else value
            self._log("info", f"option {name}={shown!r}")

    def _log(self, level: str, message: str) -> None:
        thread = threading.current_thread().name
        now = self._stamps.at(time.time())
        self._file.write(f"{now}|{level.upper()}|{os.getpid()}|{thread}|{message}\n")
