"""How long a job may go without workers, and without progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from daskprs.core.limits import Limits

TICK_AT_MOST_S = 60.0
"""The driver's loop turns several times a second. When it has stood still for longer than this (it
was stopped, or its machine slept), that is no sign that its workers did."""


class StallTimer:
    """Counts seconds without a worker, and seconds with workers in which nothing was settled."""

    def __init__(self, limits: Limits) -> None:
        self.elapsed_s = 0.0
        """Since the first event."""
        self._limits = limits
        self._now_s: float | None = None
        self._stalled_s = 0.0
        self._deserted_s = 0.0
        self._plan_moved = False

    def pass_time(self, now_s: float, *, with_slots: bool) -> None:
        """Count the seconds since the last event: there were slots all that time, or none."""
        passed_s = 0.0 if self._now_s is None else now_s - self._now_s
        self._now_s = now_s
        self.elapsed_s += passed_s
        if not with_slots:
            self._deserted_s += passed_s
            return
        self._deserted_s = 0.0
        self._stalled_s += min(TICK_AT_MOST_S, passed_s)
        if self._plan_moved:
            # The plan is made between two events, and its first mini-batch may take as long as
            # it takes to shuffle the input.
            self._stalled_s = 0.0
            self._plan_moved = False

    def progress(self) -> None:
        """Note that a mini-batch was settled."""
        self._stalled_s = 0.0

    def move_plan(self) -> None:
        """Note that the plan gave a mini-batch, however long that took: it is progress too."""
        self._plan_moved = True

    def verdict(self) -> str | None:
        """Say what has lasted too long, if something has."""
        limits = self._limits
        deserted_s, stalled_s = limits.no_workers_timeout_s, limits.progress_update_timeout_s
        if deserted_s is not None and self._deserted_s > deserted_s:
            return f"there was no worker for more than no_workers_timeout={deserted_s:g} s"
        if self._stalled_s > stalled_s:
            return (
                f"no mini-batch was settled for more than progress_update_timeout={stalled_s:g} s"
            )
        return None
