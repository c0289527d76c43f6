"""The record of a lease whose agent works on several mini-batches at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs._agent.protocol.shared_page import NOTHING
from daskprs._agent.supervision.lease_run import LeaseRun
from daskprs._core.calls import OF_CALLS_S

if TYPE_CHECKING:
    from daskprs._agent.protocol.messages import Outcomes
    from daskprs._core.columnar import ColumnBatch
    from daskprs._core.mini_batch import Assigned
    from daskprs._core.outcomes import Outcome

SOON_S = 0.03
"""Seconds that results wait for others where the agent may be without work soon."""
AHEAD_S = 0.1
"""Seconds of work that an agent has at the least while its results are on their way, and more work
on its own: with 64 calls of 50 ms, it was without any for a tenth of a second."""


class CallsRun(LeaseRun):
    """The supervisor's record of an order; outcomes arrive in any order.

    `calls` is the number of calls that the agent makes at a time.
    """

    hold_back_s = 10.0  # calls that began at the same time also end so

    def __init__(
        self, order: int, work: ColumnBatch[Assigned], return_after_s: float, calls: int
    ) -> None:
        self._position_of: dict[int, int] = {}
        """The positions of the mini-batches without an outcome, by index."""
        self._calls = calls
        super().__init__(order, work, return_after_s)

    def extend(self, work: ColumnBatch[Assigned]) -> None:
        """Append the work of a lease that continues the last one."""
        for position, index in enumerate(work.column("mini_batch.index"), self.kept + 1):
            self._position_of[index] = position
        super().extend(work)

    def expects(self, message: Outcomes) -> bool:
        """Say whether outcomes are those of mini-batches of the order, each once."""
        indexes = message.results.outcomes.column("index")
        return len({*indexes}) == len(indexes) and super().expects(message)

    def _positions_of(self, outcomes: ColumnBatch[Outcome]) -> list[int]:
        return [self._position_of.get(index, NOTHING) for index in outcomes.column("index")]

    def receive(self, message: Outcomes, but: int | None = None) -> None:
        """Record the agent's outcomes; with `but`, not that of this position."""
        super().receive(message, but)
        for index in message.results.outcomes.column("index"):
            if not self.has(self._position_of[index]):
                del self._position_of[index]

    def keep(self, last: int) -> tuple[int, ...]:
        """Give up the mini-batches beyond a position, and return their indexes."""
        given_back = super().keep(last)
        for index in given_back:
            del self._position_of[index]
        return given_back

    def _wait_s(self, now_s: float) -> float:
        """Return the seconds that the first result waits for others.

        The agent has kept it, too: all in all, it waits no longer than elsewhere.
        """
        done = sum(len(results.outcomes) for results in self._results)
        passed_s = max(now_s - (self._first_s or now_s), SOON_S)
        has_work = len(self._left) - self._calls > done / passed_s * AHEAD_S
        return self.return_after_s - OF_CALLS_S if has_work else SOON_S
