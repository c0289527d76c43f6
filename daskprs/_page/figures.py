"""The figures of a job: where the time of its processes went, what came when, what was slow."""

from __future__ import annotations

import csv
import time
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from daskprs._page.attempt_table import AttemptTable
from daskprs._page.driver_record import DriverRecord
from daskprs._page.machine_load import MachineLoad
from daskprs._page.process_lives import lives_of
from daskprs._page.process_rows import begin_before_calls, process_rows
from daskprs._page.working_time import BINS, WorkingTime
from daskprs._system.regular_files import open_regular

if TYPE_CHECKING:
    from daskprs._folders.job_folder import JobFolder
    from daskprs._page.process_lives import Life
    from daskprs._page.process_rows import Row

FEWEST_PARTS, ATTEMPTS_IN_A_PART = 10, 5


class OfNode(NamedTuple):
    """What came of a node."""

    node: int
    host: str
    """Its name; empty where that is unknown."""
    processes: int
    not_ready: int
    """Number of its processes that failed in an import or in `init`."""
    attempts: int
    failed: int
    """Number of its attempts that failed."""
    middle_s: float
    """Median of the seconds in `run`; NaN where nothing succeeded."""


class RecordedFigures(NamedTuple):
    """All figures of a job."""

    table: AttemptTable
    record: DriverRecord
    lives: list[Life]
    work: WorkingTime
    load: MachineLoad
    rows: list[Row]
    nodes: list[OfNode]

    @classmethod
    def of(cls, folder: JobFolder, *, is_running: bool) -> Self:
        """Read the figures of a job from its folder."""
        table, record, lives = AttemptTable.of(folder), DriverRecord.of(folder), lives_of(folder)
        heard = [time_s for life in lives for time_s in life.times]
        events = np.concatenate([table.attempts.ended, np.array(heard, float)])
        work = WorkingTime.of(record.runs, events, time.time() if is_running else None)
        begin_before_calls(lives, table, work)
        rows = process_rows(lives, table, work)
        nodes = _nodes(lives, table, _hosts(folder))
        return cls(table, record, lives, work, MachineLoad.of(folder, work), rows, nodes)

    def per_s(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return items that succeeded, attempts that failed, and retries, per second.

        Each is a mean over parts of the time. They are so long that some attempts end in each.
        """
        attempts, length_s = self.table.attempts, self.work.length_s
        ended, is_done = self.work.at(attempts.ended), attempts.is_done
        parts = min(BINS, max(FEWEST_PARTS, len(ended) // ATTEMPTS_IN_A_PART))
        span = (0.0, length_s)
        done, _ = np.histogram(ended[is_done], parts, span, weights=attempts.items[is_done])
        failed, _ = np.histogram(ended[~is_done], parts, span)
        retried, _ = np.histogram(ended[attempts.is_retry], parts, span)
        return done * parts / length_s, failed * parts / length_s, retried * parts / length_s

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


def _nodes(lives: list[Life], table: AttemptTable, hosts: dict[int, str]) -> list[OfNode]:
    """Return what came of each node: attempts, and processes that were not ready."""
    attempts = table.attempts
    node_of = np.array([_node(name) for name in table.processes] or [-1], int)
    node = np.where(attempts.process >= 0, node_of[attempts.process], -1)
    found = []
    for number in sorted({*(_node(life.name) for life in lives), *node_of.tolist()} - {-1}):
        own = node == number
        done = own & attempts.is_done
        of_it = [life for life in lives if _node(life.name) == number]
        found.append(
            OfNode(
                number,
                hosts.get(number, ""),
                len(of_it),
                sum(bool(life.error) for life in of_it),
                int(own.sum()),
                int((own & ~attempts.is_done).sum()),
                float(np.median(attempts.run_s[done])) if done.any() else np.nan,
            )
        )
    return found


def _hosts(folder: JobFolder) -> dict[int, str]:
    """Return the hosts of the nodes of the last run, where it has recorded its end."""
    try:
        file = open_regular(folder.node_summary)
    except FileNotFoundError:
        return {}
    with file:
        rows = csv.DictReader(line.decode(errors="replace") for line in file)
        return {int(row["Node Id"]): row["Host"] for row in rows}


def _node(name: str) -> int:
    return int(name.partition("/")[0])
