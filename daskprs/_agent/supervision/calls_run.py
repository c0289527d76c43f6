"""The record of a lease whose agent works on several mini-batches at the same time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from daskprs._agent.supervision.lease_run import RETURN_BYTES, LeaseRun
from daskprs._core.calls import OF_CALLS_S
from daskprs._core.columnar import ColumnBatch

if TYPE_CHECKING:
    from daskprs._agent.protocol.messages import Outcomes
    from daskprs._core.mini_batch import Assigned

SOON_S = 0.03
"""Seconds that results wait for others where the agent may be without work soon."""
AHEAD_S = 0.1
"""Seconds of work that an agent has at the least while its results are on their way, and more work
on its own: with 64 calls of 50 ms, it was without any for a tenth of a second."""
HOLD_BACK_S = 10.0
"""Seconds without a result after which mini-batches not begun are given to other agents: calls that
began at the same time also end so."""


class CallsRun(LeaseRun):
    """The supervisor's record of an order; outcomes arrive in any order.

    `calls` is the number of calls that the agent makes at a time.
    """

    def __init__(
        self, order: int, work: ColumnBatch[Assigned], return_after_s: float, calls: int
    ) -> None:
        self._at: dict[int, Assigned] = {}
        """The mini-batches without an outcome, by position."""
        self._position_of: dict[int, int] = {}
        """Their positions, by index."""
        self._calls = calls
        super().__init__(order, work, return_after_s)

    @property
    def finished(self) -> bool:
        """Whether no mini-batch of the order is left."""
        return not self._at

    def extend(self, work: ColumnBatch[Assigned]) -> None:
        """Append the work of a lease that continues the last one."""
        if self.finished:
            self._quiet_since_s = time.monotonic()
        for position, assigned in enumerate(work, self.kept + 1):
            self._at[position] = assigned
            self._position_of[assigned.mini_batch.index] = position
        self.kept += len(work)

    def expects(self, message: Outcomes) -> bool:
        """Say whether outcomes are those of mini-batches of the order, each once."""
        outcomes = message.results.outcomes
        indexes, attempts = outcomes.column("index"), outcomes.column("attempt")
        if len({*indexes}) != len(indexes):
            return False
        return all(
            index in self._position_of and self._at[self._position_of[index]].attempt == attempt
            for index, attempt in zip(indexes, attempts, strict=True)
        )

    def receive(self, message: Outcomes, below: int | None = None) -> None:
        """Record the agent's outcomes; with `below`, not that of this position."""
        results = message.results
        if below is not None:
            kept = [
                place
                for place, index in enumerate(results.outcomes.column("index"))
                if self._position_of[index] != below
            ]
            results = results.only(kept)
        self._quiet_since_s = time.monotonic()
        if results.outcomes:
            self._take(results)
            self.recalled = False
        self.halted = message.halted
        for index in results.outcomes.column("index"):
            del self._at[self._position_of.pop(index)]

    def due_in_s(self) -> float | None:
        """Return the seconds until results or work must be handed back; None without a deadline."""
        now = time.monotonic()
        is_full = self._payload_bytes >= RETURN_BYTES or (self._results and not self._at)
        if is_full or self.is_wanted:
            return 0.0
        if self._first_s is not None:
            # The agent has kept the first one, too: all in all, it waits no longer than elsewhere.
            after_s = SOON_S if self._is_short(now) else self.return_after_s - OF_CALLS_S
            return max(0.0, self._first_s + after_s - now)
        if self._at and not self.recalled:
            return max(0.0, self._quiet_since_s + HOLD_BACK_S - now)
        return None

    def _is_short(self, now_s: float) -> bool:
        """Say whether the agent may be without work before it gets more."""
        waiting = len(self._at) - self._calls
        done = sum(len(results.outcomes) for results in self._results)
        passed_s = max(now_s - (self._first_s or now_s), SOON_S)
        return waiting <= done / passed_s * AHEAD_S

    @property
    def stuck(self) -> bool:
        """Whether long mini-batches hold up others that could be taken back."""
        quiet_s = time.monotonic() - self._quiet_since_s
        is_quiet = bool(self._at) and not self.recalled and quiet_s >= HOLD_BACK_S
        return self.is_wanted or is_quiet

    def keep(self, last: int) -> tuple[int, ...]:
        """Give up the mini-batches beyond a position, and return their indexes."""
        self.is_wanted = False
        given_back = self.indexes(last + 1, self.kept + 1)
        for index in given_back:
            del self._at[self._position_of.pop(index)]
        self.kept = min(self.kept, last)
        self.recalled = True
        return given_back

    # ---- what is left ----

    def has(self, position: int) -> bool:
        """Say whether a position of the agent has no outcome."""
        return position in self._at

    def _place(self, position: int) -> tuple[ColumnBatch[Assigned] | None, int]:
        assigned = self._at.get(position)
        return (None if assigned is None else ColumnBatch([assigned])), 0

    def indexes(self, first: int, beyond: int) -> tuple[int, ...]:
        """Return the indexes of the mini-batches at these positions that are not done."""
        return tuple(
            assigned.mini_batch.index
            for position, assigned in self._at.items()
            if first <= position < beyond
        )

    @property
    def left(self) -> tuple[int, ...]:
        """Indexes of the agent's mini-batches without an outcome."""
        return tuple(self._position_of)
