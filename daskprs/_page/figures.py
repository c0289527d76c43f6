"""The figures of a job: where the time of its processes went, what came when, what was slow."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from daskprs._page.attempt_table import AttemptTable
from daskprs._page.driver_record import DriverRecord
from daskprs._page.machine_load import MachineLoad
from daskprs._page.process_lives import lives_of
from daskprs._page.process_rows import process_rows
from daskprs._page.working_time import BINS, WorkingTime

if TYPE_CHECKING:
    from daskprs._folders.job_folder import JobFolder
    from daskprs._page.process_lives import Life
    from daskprs._page.process_rows import Row

FEWEST_PARTS, ATTEMPTS_IN_A_PART = 10, 5


class OfNode(NamedTuple):
    """The attempts on a node."""

    node: str
    processes: int
    attempts: int
    failed: int
    middle_s: float
    """Median of the seconds in `run`."""


class RecordedFigures(NamedTuple):
    """All figures of a job."""

    table: AttemptTable
    record: DriverRecord
    lives: list[Life]
    work: WorkingTime
    load: MachineLoad
    rows: list[Row]

    @classmethod
    def of(cls, folder: JobFolder, *, is_running: bool) -> Self:
        """Read the figures of a job from its folder."""
        table, record, lives = AttemptTable.of(folder), DriverRecord.of(folder), lives_of(folder)
        heard = [time_s for life in lives for time_s in life.times]
        events = np.concatenate([table.attempts.ended, np.array(heard, float)])
        work = WorkingTime.of(record.runs, events, time.time() if is_running else None)
        rows = process_rows(lives, table, work)
        return cls(table, record, lives, work, MachineLoad.of(folder, work), rows)

    def per_s(self) -> tuple[np.ndarray, np.ndarray]:
        """Return items that succeeded, and attempts that failed, per second.

        Both are means over parts of the time that are so long that some attempts end in each.
        """
        attempts, length_s = self.table.attempts, self.work.length_s
        ended, is_done = self.work.at(attempts.ended), attempts.is_done
        parts = min(BINS, max(FEWEST_PARTS, len(ended) // ATTEMPTS_IN_A_PART))
        span = (0.0, length_s)
        done, _ = np.histogram(ended[is_done], parts, span, weights=attempts.items[is_done])
        failed, _ = np.histogram(ended[~is_done], parts, span)
        return done * parts / length_s, failed * parts / length_s

    def peaks_mb(self) -> np.ndarray:
        """Return the highest memory of a process in each part of the time; NaN where unknown."""
        attempts = self.table.attempts
        known = ~np.isnan(attempts.peak_mb)
        if not known.any():
            return np.full(BINS, np.nan)
        part = np.searchsorted(self.work.edges, self.work.at(attempts.ended[known])) - 1
        peaks = np.full(BINS, -np.inf)
        np.maximum.at(peaks, np.clip(part, 0, BINS - 1), attempts.peak_mb[known])
        return np.where(np.isfinite(peaks), peaks, np.nan)

    def nodes(self) -> list[OfNode]:
        """Return the attempts on each node."""
        attempts = self.table.attempts
        node_of = np.array([int(name.partition("/")[0]) for name in self.table.processes], int)
        if not len(node_of):
            return []
        known = attempts.process >= 0
        node = np.where(known, node_of[attempts.process], -1)
        found = []
        for number in np.unique(node_of):
            own = node == number
            done = own & attempts.is_done
            middle_s = float(np.median(attempts.run_s[done])) if done.any() else np.nan
            failed = int((own & ~attempts.is_done).sum())
            processes = int((node_of == number).sum())
            found.append(OfNode(str(number), processes, int(own.sum()), failed, middle_s))
        return found
