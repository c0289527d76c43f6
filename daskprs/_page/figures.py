"""The figures of a job: where the time of its processes went, what came when, what was slow."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from daskprs._page.attempt_table import AttemptTable
from daskprs._page.driver_record import DriverRecord
from daskprs._page.machine_load import MachineLoad
from daskprs._page.process_lives import lives_of
from daskprs._page.working_time import BINS, WorkingTime, covered

if TYPE_CHECKING:
    from daskprs._folders.job_folder import JobFolder
    from daskprs._page.process_lives import Life

MOST_ROWS = 40
"""Most rows of the picture of processes; each is of several processes where there are more."""


FEWEST_PARTS, ATTEMPTS_IN_A_PART = 10, 5


class Spent(NamedTuple):
    """Seconds of processes, by what they did: all of them, or those in each part of the time."""

    init: np.ndarray
    """Starting, and in `init`."""
    run: np.ndarray
    """In `run`."""
    other: np.ndarray
    """Loading the input of a mini-batch, or formatting what `run` returned."""
    alive: np.ndarray
    """All of it, with the time in which they had nothing to do."""


class Row(NamedTuple):
    """A row of the picture of processes."""

    name: str
    """The process, or the first and the last of several."""
    size: int
    """Number of processes."""
    spent: Spent
    deaths: list[float]
    """When processes died, in seconds of work."""


class Share(NamedTuple):
    """A share of the time of all processes."""

    name: str
    seconds: float
    share: float


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

    @classmethod
    def of(cls, folder: JobFolder, *, is_running: bool) -> Self:
        """Read the figures of a job from its folder."""
        table, record, lives = AttemptTable.of(folder), DriverRecord.of(folder), lives_of(folder)
        heard = [time_s for life in lives for time_s in life.times]
        events = np.concatenate([table.attempts.ended, np.array(heard, float)])
        work = WorkingTime.of(record.runs, events, time.time() if is_running else None)
        return cls(table, record, lives, work, MachineLoad.of(folder, work))

    # ---- over time ----

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

    # ---- processes ----

    def rows(self) -> list[Row]:
        """Return what each process did in each part of the time, or several processes together."""
        by_name: dict[str, list[Life]] = defaultdict(list)
        for life in self.lives:
            by_name[life.name].append(life)
        names = sorted(by_name, key=_order)
        size = max(1, -(-len(names) // MOST_ROWS))
        numbers = {name: number for number, name in enumerate(self.table.processes)}
        groups = [names[at : at + size] for at in range(0, len(names), size)]
        return [self._row(group, by_name, numbers) for group in groups]

    def shares(self) -> list[Share]:
        """Return what all processes have spent their time with."""
        spent = [row.spent for row in self.rows()]
        if not spent:
            return []
        sums = [float(np.sum(each)) for each in zip(*spent, strict=True)]
        init, run, other, alive = sums
        alive = max(alive, init + run + other) or 1.0  # several calls at a time are more
        names = ("run()", "loading and formatting", "starting and init()", "nothing to do")
        seconds = (run, other, init, alive - init - run - other)
        return [Share(*each, each[1] / alive) for each in zip(names, seconds, strict=True)]

    def _row(self, names: list[str], lives: dict[str, list[Life]], numbers: dict[str, int]) -> Row:
        attempts = self.table.attempts
        of_these = np.isin(attempts.process, [numbers[one] for one in names if one in numbers])
        started, ended = attempts.started[of_these], attempts.ended[of_these]
        ran_from = ended - attempts.run_s[of_these]
        own = [life for name in names for life in lives[name]]
        begun = [life.begun for life in own]
        ready = [life.begun + life.init_s for life in own]
        gone = [
            self.work.end_of_run(life.heard) if life.ended is None else life.ended for life in own
        ]
        spent = Spent(
            self._covered(begun, ready),
            self._covered(ran_from, ended),
            self._covered(started, ran_from),
            self._covered(begun, gone),
        )
        deaths = [life.ended for life in own if life.reason and life.ended is not None]
        name = names[0] if len(names) == 1 else f"{names[0]} – {names[-1]}"
        return Row(name, len(names), spent, [*self.work.at(np.array(deaths, float))])

    def _covered(self, starts: object, stops: object) -> np.ndarray:
        first, last = (self.work.at(np.asarray(each, float)) for each in (starts, stops))
        return covered(first, np.maximum(first, last), self.work.edges)

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


def _order(name: str) -> tuple[int, str]:
    node, _, process = name.partition("/")
    return int(node), process
