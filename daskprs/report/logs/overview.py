"""Counts over time: ``job_progress_overview`` for people, ``progress.csv`` for programs."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from daskprs.core.events import JobEnded, ProgressReported, SlotsChanged
from daskprs.report.humanize import Stamps, duration
from daskprs.report.progress.rate import RateMeter, settled, total_of
from daskprs.report.progress.stall_reason import why_waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from daskprs.core.events import Event
    from daskprs.folders.job_folder import JobFolder
    from daskprs.report.logs.log_files import LogFiles

EVERY_S = 10.0
COLUMNS = (
    "Datetime",
    "Total Tasks",
    "Scheduled Tasks",
    "Completed Tasks",
    "Failed Tasks",
    "Elapsed Time",
    "Estimated Remaining Time",
)


class Overview:
    """Writes the counts at the start, every ten seconds, and at the end.

    Scheduled mini-batches are those given to agents so far; completed and failed ones are settled.
    Times are in seconds.
    """

    def __init__(
        self, folder: JobFolder, files: LogFiles, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._folder = folder
        self._files = files
        self._wall_clock = wall_clock
        self._table = files.file(folder.progress_table, ",".join(COLUMNS) + "\n")
        self._stamps = Stamps()
        self._table_stamps = Stamps("%Y-%m-%dT%H:%M:%S", "+00:00")
        self._pace = RateMeter()
        self._slots = 0
        self._due_s = 0.0

    def tell(self, event: Event) -> None:
        """Write the counts when they are due."""
        match event:
            case ProgressReported(elapsed_s=elapsed_s) if elapsed_s >= self._due_s:
                self._due_s = elapsed_s + EVERY_S
                self._write(event, why_waiting(event, self._slots))
            case SlotsChanged(slots=slots):
                self._slots = slots
            case JobEnded():
                self._write(ProgressReported(event.standing, (), event.elapsed_s, 0.0), "")

    def close(self) -> None:
        """Do nothing: `LogFiles` flushes the files."""

    def _write(self, stood: ProgressReported, why: str) -> None:
        standing, wall_s = stood.standing, self._wall_clock()
        left_s = self._pace.pace(stood).left_s
        total = total_of(standing)
        done, failed = standing.mini_batches.succeeded, standing.mini_batches.failed
        scheduled = settled(standing) + standing.running
        said = [
            f"{scheduled} scheduled",
            f"{done + failed} of {'an unknown number' if total is None else total} processed",
            f"{failed} failed",
            f"{duration(stood.elapsed_s)} elapsed",
            "remaining time unknown" if left_s is None else f"{duration(left_s)} remaining",
            why,
        ]
        day = f"{datetime.fromtimestamp(wall_s, UTC):%Y%m%d}"
        overview = self._files.file(self._folder.progress_overview(day))
        overview.write(f"{self._stamps.at(wall_s)}|{', '.join(part for part in said if part)}\n")
        self._table.write(
            f"{self._table_stamps.at(wall_s)},{'' if total is None else total},{scheduled},{done},"
            f"{failed},{stood.elapsed_s:.1f},{'' if left_s is None else f'{left_s:.1f}'}\n"
        )
