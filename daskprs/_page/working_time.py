"""The time in which drivers worked on a job, without the pauses between its runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

BINS = 160
"""Into how many parts of the same length the time is cut: about one for each five pixels."""


class WorkingTime(NamedTuple):
    """The runs of a job, one after the other; times are seconds since the epoch."""

    begins: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, runs: Sequence[tuple[float, float]], events: np.ndarray, now: float | None) -> Self:
        """Return the runs, which go on until the last of the `events` in them.

        A run has its beginning, and the last time that its driver has logged. Events are times in
        any order. The last run ends `now` if it goes on; None where no driver is at work.
        """
        if not runs:
            first = float(events.min()) if len(events) else 0.0
            runs = [(first, first)]
        begins, ends = (np.array(each, float) for each in zip(*runs, strict=True))
        run_of = np.searchsorted(begins, events, side="right") - 1
        known = run_of >= 0
        np.maximum.at(ends, run_of[known], events[known])
        if now is not None:
            ends[-1] = max(ends[-1], now)
        return cls(begins, np.maximum(ends, begins + 0.001))

    @property
    def length_s(self) -> float:
        """Seconds of all runs."""
        return float((self.ends - self.begins).sum())

    @property
    def edges(self) -> np.ndarray:
        """The ends of the parts of the time, in seconds of work."""
        return np.linspace(0.0, self.length_s, BINS + 1)

    @property
    def joints(self) -> np.ndarray:
        """Where one run follows on another, in seconds of work."""
        joints: np.ndarray = np.cumsum(self.ends - self.begins)[:-1]
        return joints

    def at(self, times: np.ndarray) -> np.ndarray:
        """Return times as seconds of work since the beginning of the first run."""
        before = np.concatenate([[0.0], self.joints])
        run = np.clip(np.searchsorted(self.begins, times, side="right") - 1, 0, None)
        within = np.clip(times, self.begins[run], self.ends[run]) - self.begins[run]
        worked: np.ndarray = before[run] + within
        return worked

    def begin_of_run(self, time_s: float) -> float:
        """Return when the run began in which a time lies."""
        return float(self.begins[self._run_of(time_s)])

    def end_of_run(self, time_s: float) -> float:
        """Return when the run ended in which a time lies."""
        return float(self.ends[self._run_of(time_s)])

    def _run_of(self, time_s: float) -> int:
        return max(0, int(np.searchsorted(self.begins, time_s, side="right")) - 1)


def covered(starts: np.ndarray, stops: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the seconds of intervals between each two edges, all intervals together.

    What lies before a time t is the sum of t - start of those that began before it, less the sum of
    t - stop of those that ended before it, so two sorted arrays are enough for a million of them.
    """

    def before(times: np.ndarray) -> np.ndarray:
        order = np.sort(times)
        sums = np.concatenate([[0.0], np.cumsum(order)])
        count = np.searchsorted(order, edges)
        summed: np.ndarray = count * edges - sums[count]
        return summed

    each: np.ndarray = np.diff(before(starts) - before(stops))
    positive: np.ndarray = np.clip(each, 0.0, None)
    return positive
