"""The slots of a cluster, as the driver's loop sees them."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from distributed import span

from daskprs._cluster.job_figures import FigureSender
from daskprs._cluster.lease import failure_of_lease, fetched
from daskprs._cluster.slot_manager import SlotManager
from daskprs._cluster.staged_work import StagedWork
from daskprs._core.actions import LeaseFailed, LeaseWithdrawn
from daskprs._core.events import AgentChanged, Place
from daskprs._core.lease import LeaseReturned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from distributed import Client, Future

    from daskprs._agent.protocol.messages import JobSpec
    from daskprs._cluster.slot_allocator import SlotAllocator
    from daskprs._core.actions import LedgerEvent, SlotId
    from daskprs._core.events import Progress, ProgressReported, SlotState
    from daskprs._core.lease import Lease
    from daskprs._core.mini_batch import MiniBatch
    from daskprs._report.listeners import Listeners

LOOK_EVERY_S = 0.25
STOP_GRACE_S = 30.0
"""Seconds after the timeout of `shutdown` for kills, stack dumps and a busy cluster."""


class ClusterSlots:
    """The slots of Dask workers, with what these workers hold of the input.

    Threads of Dask only put ended leases into the inbox; all else happens in the driver's thread.
    """

    def __init__(
        self,
        client: Client,
        job: JobSpec,
        nodes: SlotAllocator,
        listeners: Listeners,
        staged: StagedWork[Any] | None = None,
    ) -> None:
        self._client = client
        self._job = job
        self._nodes = nodes
        self._listeners = listeners
        self._staged = StagedWork[Any]() if staged is None else staged
        """The partitions of the input that workers hold."""
        self._figures = FigureSender(client, job.job_dir, job.unit)
        self._inbox: SimpleQueue[tuple[int, Future | LeaseReturned | None] | None] = SimpleQueue()
        self._manager: SlotManager
        self._open = ExitStack()

    def open(self, tell: Callable[[LedgerEvent], None]) -> None:
        """Open a session on the cluster; slots appear once their workers are ready."""
        self._manager = SlotManager(
            self._client,
            self._job,
            self._nodes,
            self._listeners,
            tell=tell,
            wake=self._inbox.put,
            prepares=not self._staged.is_known,
        )
        # Before the start: a Ctrl-C in the middle of it has to take the plugins off the cluster,
        # too.
        self._open.callback(self._manager.close)
        self._open.callback(self._staged.close)
        self._manager.open()
        self._staged.open(self._client, partial(self._inbox.put, None))
        # Dask's dashboard shows the leases, with their seconds and rows, under the name of the job.
        self._open.enter_context(span("daskprs", Path(self._job.job_dir).name))

    def close(self) -> None:
        """Leave the cluster as it was."""
        self._open.close()

    def turn(self, work_s: float) -> None:
        """Process the events of the cluster since the last turn."""
        self._manager.turn(work_s)
        self._staged.turn(self._manager.slot_counts, are_all=self._manager.are_complete)

    # ---- leases ----

    def submit(self, lease: Lease, slot: SlotId) -> None:
        """Send a lease to its slot, with the staged partitions that it needs."""
        lease, staged = self._staged.loaded(lease)
        self._manager.submit(lease, slot, staged)

    def withdraw(self, lease_id: int, *, rest: bool = False) -> None:
        """Ask the worker of a lease to give it back, or the rest of it."""
        self._manager.withdraw(lease_id, rest=rest)

    def ended(
        self, within_s: float, is_over: Callable[[], bool]
    ) -> Iterator[tuple[SlotId, LeaseReturned | LeaseFailed | LeaseWithdrawn]]:
        """Yield the leases that have ended; wait for the first one."""
        with suppress(Empty):
            news = self._inbox.get(timeout=within_s)
            while True:
                ended = None if news is None else self._ended(*news, is_over)
                if ended is not None:
                    yield ended
                news = self._inbox.get_nowait()

    def _ended(  # noqa: PLR0911 - a row for each end
        self, lease_id: int, future: Future | LeaseReturned | None, is_over: Callable[[], bool]
    ) -> tuple[SlotId, LeaseReturned | LeaseFailed | LeaseWithdrawn] | None:
        """Return how a lease ended; None where it was lost with its slot."""
        manager = self._manager
        slot = manager.take(lease_id)
        if slot is None:
            return None
        if isinstance(future, LeaseReturned):
            return slot, future
        if future is None:  # its results could not be fetched
            manager.drop_if_there(slot, expected=False)
            return None
        if future.status == "finished":
            is_there = partial(manager.is_there, slot.worker)
            returned = fetched(future, self._client, lambda: is_there() and not is_over())
            if returned is not None:
                return slot, returned
            # A scheduler that has stopped would hold up the end of the job: a resume runs it again.
            if is_over():
                return slot, LeaseWithdrawn(lease_id)
        # Dask gives a lease the error of a partition that it depends on. The lease has not begun
        # then, so nothing of it is charged.
        if self._staged.has_lost():
            return slot, LeaseWithdrawn(lease_id)
        if future.status == "error":
            return slot, LeaseFailed(lease_id, failure_of_lease(future, slot.worker))
        # It was cancelled: if by a crash, the loss of the worker has been counted already.
        manager.drop_if_there(slot, expected=True)
        return None

    def settle(self, mini_batches: Iterable[MiniBatch]) -> None:
        """Let partitions go whose mini-batches are all settled."""
        self._staged.settle(mini_batches)

    def hide_gpus(self) -> None:
        """Offer as many slots as workers have threads."""
        self._manager.hide_gpus()

    def stopped(self, timeout_s: float) -> Iterator[AgentChanged | None]:
        """Shut down the agents; yield their events, and None regularly while there are none.

        A worker that is not there any more is not awaited: its agents end with it.
        """
        answers, nodes = self._manager.stop_agents(), self._manager.workers
        until = time.monotonic() + timeout_s + STOP_GRACE_S
        left = [*nodes]
        while left and time.monotonic() < until:
            try:
                worker, events = answers.get(timeout=LOOK_EVERY_S)
            except Empty:
                left = [*filter(self._manager.is_there, left)]
                yield None
                continue
            left = [one for one in left if one != worker]
            for event in events:
                yield AgentChanged(Place(nodes[worker], event.process), event)

    # ---- what people see ----

    def states(self) -> tuple[SlotState, ...]:
        """Return the states of all slots."""
        return self._manager.states()

    def obstacles(self, standing: Progress) -> tuple[str, ...]:
        """Return the reasons that keep slots from work, on the workers or in the input."""
        obstacles = self._manager.obstacles()
        at_hand = standing.waiting - standing.delayed
        if not at_hand and standing.running < sum(self._manager.slot_counts.values()):
            obstacles += self._staged.obstacles()
        return obstacles

    def show(self, progress: ProgressReported, *, is_last: bool = False) -> None:
        """Send the figures of the job to the scheduler."""
        self._figures.show(progress, is_last=is_last)
