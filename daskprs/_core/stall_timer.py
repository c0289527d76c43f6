"""Timeouts of a job without workers, and without progress.

Both count the time since the last event by the state that it has left behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from daskprs._core.ledger_state import LedgerState

TICK_AT_MOST_S = 60.0
"""Maximum seconds counted between two turns of the driver's loop, which turns several times a
second. A longer gap (the driver was stopped, or its machine slept) says nothing about workers."""


class StallTimer:
    """Counts seconds without a worker, and seconds with workers in which nothing was settled."""

    def __init__(self, state: LedgerState) -> None:
        self._state = state
        self._began_s: float | None = None
        self._stalled_s = 0.0
        self._deserted_s = 0.0
        self._plan_moved = False

    def pass_time(self, now_s: float) -> None:
        """Set the clock to the time of an event, and count the seconds since the last one."""
        state = self._state
        if self._began_s is None:
            self._began_s = state.now_s = now_s
        passed_s = min(TICK_AT_MOST_S, now_s - state.now_s)
        state.now_s, state.elapsed_s = now_s, now_s - self._began_s
        if not state.slots:
            self._deserted_s += passed_s
            return
        self._deserted_s = 0.0
        rests = not state.leases and state.backlog.has_only_delayed
        if (rests or state.waits) and not state.is_throttled:
            return  # each mini-batch waits for its retry or for a permit, as it should
        self._stalled_s += passed_s
        if self._plan_moved:
            # The plan is made between two events, and its first mini-batch may take as long as
            # it takes to shuffle the input.
            self._stalled_s = 0.0
            self._plan_moved = False

    def progress(self) -> None:
        """Record that a mini-batch was settled."""
        self._stalled_s = 0.0
        self._state.is_throttled = False

    def move_plan(self) -> None:
        """Record a new mini-batch that a slot waits for as progress, however long it took."""
        self._plan_moved = True

    @property
    def is_deserted(self) -> bool:
        """Whether there was no worker for too long."""
        most_s = self._state.limits.no_workers_timeout_s
        return most_s is not None and self._deserted_s > most_s

    def verdict(self) -> str | None:
        """Return the exceeded timeout as a message; None if there is none."""
        limits = self._state.limits
        if self.is_deserted:
            most_s = limits.no_workers_timeout_s
            return f"there was no worker for more than no_workers_timeout={most_s:g} s"
        stalled_s = limits.progress_update_timeout_s
        if stalled_s < self._stalled_s and not any(
            slot.is_up for slot in self._state.slots.values()
        ):
            stalled_s = limits.first_progress_timeout_s
        if self._stalled_s > stalled_s:
            why = f"no mini-batch was settled for more than progress_update_timeout={stalled_s:g} s"
            if self._state.leases or not self._state.backlog.has_none_now:
                return why
            return f"{why}: the input of the next one was still being computed"
        return None
