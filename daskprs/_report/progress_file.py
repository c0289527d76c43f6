"""The file in which other processes see what a running job does now."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from daskprs._core.events import JobEnded, MessageLogged, ProgressReported
from daskprs._report.humanize import duration
from daskprs._report.job_view import View
from daskprs._report.log_files import SHARE_OF_TIME
from daskprs._system.atomic_file import write_json
from daskprs._system.regular_files import read_json
from daskprs.errors import JobFolderError

if TYPE_CHECKING:
    from collections.abc import Callable

    from daskprs._core.events import Event
    from daskprs._folders.job_folder import JobFolder
    from daskprs._report.job_view import JobWatch

PREPARING = "preparing"
"""The key of what is said of the input before there are figures."""
EVERY_S = 1.0
OLD_S = 10.0
"""Seconds after which an unchanged file is reported as old."""


class ProgressFile:
    """Writes the view of a job about once a second, and removes the file at the end.

    A slow folder is written to less often: at most a twentieth of the driver's time goes into it.
    """

    def __init__(self, folder: JobFolder, watch: JobWatch) -> None:
        self._path = folder.progress_now
        self._watch = watch
        self._due_s = 0.0
        self.close()  # of a driver that was killed

    def tell(self, event: Event) -> None:
        """Write the file if that is due."""
        match event:
            case ProgressReported() if time.monotonic() >= self._due_s:
                if (view := self._watch.view()) is not None:
                    self._write(view.record())
            case MessageLogged("notice", message) if self._watch.view() is None:
                self._write({PREPARING: message})
            case JobEnded():
                self.close()

    def close(self) -> None:
        """Remove the file: nothing runs at present."""
        self._path.unlink(missing_ok=True)

    def _write(self, record: dict[str, Any]) -> None:
        begun_s = time.monotonic()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self._path, record, durable=False)
        now_s = time.monotonic()
        self._due_s = now_s + max(EVERY_S, (now_s - begun_s) / SHARE_OF_TIME)


def preparation_of(folder: JobFolder) -> str:
    """Return the last notice of a driver that prepares its input; empty before the first one."""
    with suppress(OSError, ValueError, LookupError, TypeError, JobFolderError):
        return str(read_json(folder.progress_now)[PREPARING])
    return ""


class JobOfOthers:
    """The view of a job that another process runs, on this machine or on another one.

    The clock gives seconds, and never goes back.
    """

    def __init__(self, folder: JobFolder, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = folder.progress_now
        self._clock = clock
        self._record: dict[str, Any] = {}
        self._changed_s = clock()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start of the work, as far as they are known here."""
        known: float = self._record.get("elapsed_s", 0.0)
        return known + self._clock() - self._changed_s

    def view(self) -> View | None:
        """Return the latest view; None before the driver has written one."""
        if not self._record and not self.look():
            return None
        view = View.of(self._record)
        old_s = self._clock() - self._changed_s
        if old_s < OLD_S:
            return view
        old = f"the driver has written nothing for {duration(old_s)}"
        return view._replace(obstacles=(old, *view.obstacles))

    def look(self) -> bool:
        """Read the file; return whether it has changed."""
        before, old_s = self._record, 0.0
        # It may be gone just now, or be that of another version.
        with suppress(OSError, ValueError, LookupError, TypeError, JobFolderError):
            record = read_json(self._path)
            View.of(record)
            self._record = record
            if not before:
                old_s = max(0.0, time.time() - self._path.stat().st_mtime)
        if self._record == before:
            return False
        self._changed_s = self._clock() - old_s
        return True
