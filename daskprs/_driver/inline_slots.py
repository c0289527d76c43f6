"""The only slot of a job in the caller's process: its leases are calls of functions."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from daskprs._agent.child.debugging import forget
from daskprs._agent.inline.governing_thread import GoverningThread
from daskprs._agent.inline.inline_agent import InlineStarter
from daskprs._agent.supervision.pool import AgentPool
from daskprs._core.actions import (
    LeaseFailed,
    LeaseKept,
    LeaseWithdrawn,
    SlotAdded,
    SlotId,
    SlotResources,
)
from daskprs._core.events import AgentChanged, Place
from daskprs._core.outcomes import Failure
from daskprs.errors import AgentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from daskprs._agent.child.debugging import Raised
    from daskprs._agent.protocol.messages import JobSpec
    from daskprs._core.actions import LedgerEvent
    from daskprs._core.events import Progress, ProgressReported, SlotState
    from daskprs._core.lease import Lease, LeaseReturned
    from daskprs._core.mini_batch import MiniBatch

SLOT = SlotId("this process", 0, node=0)


class InlineSlots:
    """One slot, whose agent works in the thread that drives the job."""

    def __init__(self, job: JobSpec, threads: int, raised: Raised = forget) -> None:
        self._pool = AgentPool(job, starter=InlineStarter(job, raised))
        self._governing: GoverningThread | None = None
        if self._pool.permits is not None and job.rate_limit is not None:
            self._governing = GoverningThread(self._pool.permits, job.rate_limit)
        self._threads = threads
        self._leases: deque[Lease] = deque()
        """Leases that have not begun."""
        self._is_offered = False

    def open(self, tell: Callable[[LedgerEvent], None]) -> None:
        """Begin to offer the slot."""
        self._tell = tell

    def close(self) -> None:
        """End the agent."""
        self._pool.close()
        if self._governing is not None:
            self._governing.close()

    def turn(self, work_s: float) -> None:  # noqa: ARG002 - no worker can be asked for
        """Offer the slot."""
        if not self._is_offered:
            self._is_offered = True
            self._tell(SlotAdded(SLOT, SlotResources(threads=self._threads)))

    def submit(self, lease: Lease, slot: SlotId) -> None:  # noqa: ARG002 - there is one
        """Keep a lease for the next turn."""
        # Not now: the other actions of the event come first.
        self._leases.append(lease)

    def withdraw(self, lease_id: int, *, rest: bool = False) -> None:  # noqa: ARG002
        """Give back a lease that has not begun: none is under way meanwhile."""
        left = [lease for lease in self._leases if lease.id != lease_id]
        is_back = len(left) < len(self._leases)
        self._leases = deque(left)
        self._tell(LeaseWithdrawn(lease_id) if is_back else LeaseKept(lease_id))

    def ended(
        self,
        within_s: float,
        is_over: Callable[[], bool],  # noqa: ARG002 - nothing is on its way
    ) -> Iterator[tuple[SlotId, LeaseReturned | LeaseFailed | LeaseWithdrawn]]:
        """Work on the leases, and yield each when it has ended."""
        if self._is_offered and not self._leases:
            time.sleep(within_s)  # the slot rests after an error of daskprs, or a retry is delayed
        while self._leases:
            lease = self._leases.popleft()
            try:
                returned = self._pool.run(lease)
            except AgentError as error:
                yield SLOT, LeaseFailed(lease.id, Failure(type(error).__name__, str(error)))
                continue
            if self._governing is not None:
                self._governing.check()
            yield SLOT, returned

    def settle(self, mini_batches: Iterable[MiniBatch]) -> None:
        """Do nothing: the slot holds nothing of the input."""

    def hide_gpus(self) -> None:
        """Do nothing: the process sees what it sees."""

    def stopped(self, timeout_s: float) -> Iterator[AgentChanged | None]:  # noqa: ARG002
        """Shut down the agent, and yield its events."""
        for event in self._pool.stop():
            yield AgentChanged(Place(SLOT.node, event.process), event)

    def states(self) -> tuple[SlotState, ...]:
        """Return the state of the slot."""
        return tuple(self._pool.states().values())

    def obstacles(self, standing: Progress) -> tuple[str, ...]:  # noqa: ARG002
        """Return nothing: the slot is always there."""
        return ()

    def show(self, progress: ProgressReported, *, is_last: bool = False) -> None:
        """Do nothing: no cluster shows the job."""
