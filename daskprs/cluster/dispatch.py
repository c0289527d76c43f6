"""The driver's loop: it passes events to the ledger, and executes the ledger's actions."""

from __future__ import annotations

import gc
import time
from collections import deque
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, assert_never

from distributed import span

from daskprs.agent.supervision.pool import close_pools
from daskprs.cluster.job_figures import FigureSender
from daskprs.cluster.lease import failure_of_lease, fetched
from daskprs.cluster.remote.transfer import Brought
from daskprs.cluster.slot_manager import SlotManager
from daskprs.cluster.staged_work import StagedWork
from daskprs.core.actions import (
    Abort,
    Commit,
    FailAttempt,
    Finish,
    HideGpus,
    LeaseFailed,
    LeaseWithdrawn,
    Remark,
    Submit,
    Ticked,
    Withdraw,
)
from daskprs.core.ending import Ending, JobStatus
from daskprs.core.events import (
    NOWHERE,
    AgentChanged,
    AttemptFailed,
    MessageLogged,
    MiniBatchesDone,
    Place,
    ProgressReported,
)
from daskprs.folders.job_folder import JobFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from distributed import Client, Future

    from daskprs.agent.protocol.messages import JobSpec
    from daskprs.cluster.slot_allocator import SlotAllocator
    from daskprs.cluster.worker_events import AgentsStopped
    from daskprs.core.actions import Action, LedgerEvent
    from daskprs.core.events import Progress
    from daskprs.core.ledger import Ledger
    from daskprs.core.mini_batch import MiniBatch
    from daskprs.core.outcomes import Failure
    from daskprs.output.store import ResultStore
    from daskprs.report.listeners import Listeners

LOOK_EVERY_S = 0.25
STOP_GRACE_S = 30.0
"""Seconds after the timeout of `shutdown` for kills, stack dumps and a busy cluster."""


def stopped(
    nodes: Mapping[str, int],
    answers: SimpleQueue[AgentsStopped],
    timeout_s: float,
    is_there: Callable[[str], bool],
) -> Iterator[AgentChanged | None]:
    """Yield the events of agents that shut down, and None regularly while there are none.

    When a worker goes meanwhile, its agents end with it, and its answer is not awaited.

    Parameters
    ----------
    nodes
        The workers, by address, and the number of the node that each is on.
    answers
        Gets an entry for each worker whose agents have shut down.
    timeout_s
        The timeout of `shutdown` in seconds.
    is_there
        Returns whether a worker is still there and must be waited for.

    """
    until = time.monotonic() + timeout_s + STOP_GRACE_S
    left = dict(nodes)
    while left and time.monotonic() < until:
        try:
            worker, events = answers.get(timeout=LOOK_EVERY_S)
        except Empty:
            left = {worker: node for worker, node in left.items() if is_there(worker)}
            yield None
            continue
        left.pop(worker, None)
        for event in events:
            yield AgentChanged(Place(nodes[worker], event.process), event)


TICK_S = 0.25
"""Seconds between turns of the loop when no lease ends."""


class Dispatcher:
    """Sends the ledger's leases to the slots of a cluster, and their results to a store.

    Everything happens in the thread that calls `run`; threads of Dask only put finished futures
    into the inbox.
    """

    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        store: ResultStore,
        listeners: Listeners,
        nodes: SlotAllocator,
        job: JobSpec,
        check: Callable[[], None] = lambda: None,
        staged: StagedWork[Any] | None = None,
    ) -> None:
        self._client = client
        self._check = check
        """Raises a `KeyboardInterrupt` if another thread wants the job to end."""
        self._staged = StagedWork[Any]() if staged is None else staged
        """What workers hold of the input."""
        self._ledger = ledger
        self._store = store
        self._listeners = listeners
        self._job_id = job.job_id
        self._job_dir = job.job_dir
        self._name = Path(job.job_dir).name
        self._figures = FigureSender(client, job.job_dir, job.unit)
        self._shutdown_timeout_s = job.limits.shutdown_timeout_s
        self._inbox: SimpleQueue[tuple[int, Future | Brought] | None] = SimpleQueue()
        self._slot_manager = SlotManager(
            client,
            job,
            nodes,
            listeners,
            tell=self._tell_ledger,
            wake=self._inbox.put,
            prepares=not self._staged.is_known,
        )
        self._ending: Ending | None = None
        self._lease_failures: set[tuple[str, str]] = set()
        self._started_s = self._settled_s = time.monotonic()

    def run(self) -> Ending:
        """Work until everything is settled or the ledger gives up."""
        try:
            self._slot_manager.open()
            self._staged.open(self._client, partial(self._inbox.put, None))
            return self._work()
        except BaseException:
            close_pools(self._job_id)  # at once, without asking Dask: this may be Ctrl-C
            raise
        finally:
            gc.unfreeze()
            self._staged.close()
            self._slot_manager.close()

    def _work(self) -> Ending:
        # Existing objects of the caller's process are not our garbage: each full collection
        # would walk through them all, and a job of many mini-batches triggers many collections.
        gc.freeze()
        with span("daskprs", self._name):
            while self._ending is None:
                self._turn()
        if self._ending.status is JobStatus.COMPLETED:
            self._stop_agents()
        self._figures.show(self._standing(), is_last=True)
        return self._ending

    # ---- one turn of the loop ----

    def _turn(self) -> None:
        self._check()
        try:
            self._lease_ended(self._inbox.get(timeout=TICK_S))
            until = time.monotonic() + TICK_S
            while self._ending is None and time.monotonic() < until:
                self._lease_ended(self._inbox.get_nowait())
        except Empty:
            pass
        self._slot_manager.turn(self._ledger.work_s)
        slots = self._slot_manager
        self._staged.turn(slots.slot_counts, are_all=slots.are_complete)
        self._tell_ledger(Ticked())
        self._store.sync_if_due(time.monotonic())
        self._tell_standing()

    def _tell_standing(self) -> None:
        standing = self._standing()
        self._listeners.tell(standing)
        self._figures.show(standing)

    def _standing(self) -> ProgressReported:
        now, standing = time.monotonic(), self._ledger.standing()
        return ProgressReported(
            standing,
            self._slot_manager.states(),
            now - self._started_s,
            now - self._settled_s,
            self._obstacles(standing),
        )

    def _obstacles(self, standing: Progress) -> tuple[str, ...]:
        """Return what keeps slots from work, on the workers or in the input."""
        slots = self._slot_manager
        obstacles = slots.obstacles()
        if not standing.waiting and standing.running < sum(slots.slot_counts.values()):
            obstacles += self._staged.obstacles()
        return obstacles

    def _lease_ended(self, ended: tuple[int, Future | Brought] | None) -> None:
        """Process the end of a lease."""
        if ended is None:
            return
        lease_id, future = ended
        slot = self._slot_manager.take(lease_id)
        if slot is None:
            return
        returned = None
        if isinstance(future, Brought):
            returned = future.returned
        elif future.status == "finished":
            worker = slot.worker
            returned = fetched(future, self._client, lambda: self._slot_manager.is_there(worker))
        if returned is not None:
            place = Place(slot.node, returned.process, returned.host, returned.pid)
            for event in returned.agent_events:
                self._listeners.tell(AgentChanged(place._replace(process=event.process), event))
            self._tell_ledger(returned, place)
        elif isinstance(future, Brought):
            self._slot_manager.not_brought(slot)
        elif self._staged.has_lost():
            self._tell_ledger(LeaseWithdrawn(lease_id))
        elif future.status == "error":
            failure = failure_of_lease(future, slot.worker)
            self._tell_once(slot.worker, failure)
            self._tell_ledger(LeaseFailed(lease_id, failure))
        else:
            self._slot_manager.broken_off(slot)

    def _tell_once(self, worker: str, failure: Failure) -> None:
        """Warn of a failed lease; further failures of this kind on the worker are only logged."""
        told = f"a lease could not be worked on: {failure}"
        first = (worker, failure.kind) not in self._lease_failures
        self._lease_failures.add((worker, failure.kind))
        self._listeners.tell(MessageLogged("warning" if first else "debug", told))

    # ---- actions ----

    def _tell_ledger(self, event: LedgerEvent, place: Place = NOWHERE) -> None:
        left = deque(self._ledger.handle(event, time.monotonic()))
        try:
            while left and self._ending is None:
                self._act(left[0], place)
                left.popleft()
        except BaseException:
            # The result must not count work that the journal does not contain.
            self._ledger.take_back(left)
            raise

    def _act(self, action: Action, place: Place) -> None:  # noqa: C901 - one case for each action
        match action:
            case Submit(lease, slot):
                lease, staged = self._staged.loaded(lease)
                self._slot_manager.submit(lease, slot, staged)
            case Withdraw(lease_id):
                self._slot_manager.withdraw(lease_id)
            case Commit(mini_batches):
                made = action.made
                self._store.commit(mini_batches, made)
                self._settle(mini_batches)
                self._listeners.tell(MiniBatchesDone(place, mini_batches, made.outcomes))
            case FailAttempt(mini_batch, outcome, final, charged, lost_node):
                if lost_node is not None:
                    place = NOWHERE._replace(node=lost_node)
                if not outcome.started:  # lost with its node: the ledger has no clock
                    outcome = outcome._replace(started=time.time())
                self._store.attempt_failed(mini_batch, outcome, place, final=final, charged=charged)
                if final:
                    self._settle([mini_batch])
                self._listeners.tell(AttemptFailed(place, mini_batch, outcome, final, charged))
            case HideGpus():
                self._slot_manager.hide_gpus()
                JobFolder(self._job_dir).gpus_hidden.touch()  # for a resume
            case Remark(level, message):
                self._listeners.tell(MessageLogged(level, message))
            case Abort(reason, failure):
                self._ending = Ending(JobStatus.FAILED, reason, failure, self._ledger.errors)
            case Finish():
                self._ending = Ending(JobStatus.COMPLETED)
            case _:
                assert_never(action)

    def _settle(self, mini_batches: Iterable[MiniBatch]) -> None:
        self._settled_s = time.monotonic()
        self._staged.settle(mini_batches)

    def _stop_agents(self) -> None:
        """Shut down the agents, and report their events."""
        slot_manager = self._slot_manager
        timeout_s = self._shutdown_timeout_s
        for told in stopped(
            slot_manager.workers, slot_manager.stop_agents(), timeout_s, slot_manager.is_there
        ):
            if told is None:
                self._tell_standing()
            else:
                self._listeners.tell(told)
