"""A job's slots on a cluster, and the leases in flight to them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, assert_never

from daskprs._agent.supervision.supervisor import deadlines_s
from daskprs._cluster.lost_cluster import lost_cluster_ignored
from daskprs._cluster.remote.node_service import NodeCalls
from daskprs._cluster.remote.nodes import FarNodes
from daskprs._cluster.session import Session
from daskprs._cluster.slot_allocator import without_device
from daskprs._cluster.worker_events import (
    AgentsStopped,
    Heartbeat,
    LeaseAnswered,
    NodeMeasured,
    PermitsFailed,
    StagesChanged,
    WorkerLeaving,
    WorkerLost,
    WorkerRefused,
    WorkersFound,
)
from daskprs._cluster.worker_registry import WorkerRegistry
from daskprs._core.actions import LeaseKept, LeaseWithdrawn, SlotAdded, SlotsLost, ThreadsCounted
from daskprs._core.events import (
    AgentChanged,
    Place,
    SlotsChanged,
    UsageMeasured,
)
from daskprs._core.lease import AgentStarted
from daskprs._core.rate_limit import NO_PERMITS
from daskprs._core.watchdog import Watchdog
from daskprs._report.humanize import counted
from daskprs.errors import DaskprsError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from distributed import Client, Future

    from daskprs._agent.protocol.messages import JobSpec
    from daskprs._cluster.slot_allocator import SlotAllocator
    from daskprs._cluster.worker_events import WorkerEvent
    from daskprs._core.actions import LedgerEvent, SlotId, SlotResources
    from daskprs._core.events import SlotState
    from daskprs._core.lease import Lease
    from daskprs._core.usage import NodeUsage
    from daskprs._report.listeners import Listeners

REFUSED_FOR_S = 10.0
"""Seconds to wait for a usable worker after some workers could not run agents."""
LOOK_EVERY_S = 1.0
AWAITED_S = 10.0
"""Seconds for which a host's slots are reserved for those of its workers still to come."""


class SlotManager:
    """Tracks the slots of a cluster as they come and go, and the leases in flight.

    `tell` is called with events of slots, threads and withdrawn leases, and `wake` by Dask's
    threads with an ended lease, or with None for other news. With `prepares`, workers prepare the
    start of agents before the first lease.
    """

    def __init__(
        self,
        client: Client,
        job: JobSpec,
        nodes: SlotAllocator,
        listeners: Listeners,
        tell: Callable[[LedgerEvent], None],
        wake: Callable[[tuple[int, Future] | None], None],
        *,
        prepares: bool = False,
    ) -> None:
        self._client = client
        self._job = job
        self._listeners = listeners
        self._say = listeners.say
        self._tell = tell
        self._wake = wake
        self._prepares = prepares
        self._nodes = nodes
        self._known_helpers: set[str] = set()
        """Workers that were said to run `preprocess`."""
        self._has_other_resources = False
        """Whether the slots that are there have other resources for their next agents."""
        self._gpus_per_process = job.limits.gpus_per_process
        self._news: SimpleQueue[WorkerEvent] = SimpleQueue()
        self._worker_registry = WorkerRegistry(nodes, Watchdog(deadlines_s(job.limits)))
        self._slots: dict[SlotId, SlotResources] = {}
        """The slots that are there, as the ledger knows them."""
        self._leases: dict[int, tuple[SlotId, Future]] = {}
        self._delivering = threading.Lock()
        """Dask's threads deliver, and so does the driver."""
        self._delivered: set[int] = set()
        """Leases of `_leases` whose end has been passed on."""
        self._done_before: set[int] = set()
        """Leases of `_leases` that had ended at the last look."""
        self._refused: dict[str, str] = {}
        self._threads = ThreadsCounted(frozenset(), frozenset())
        self._calls = NodeCalls(client, job.job_id)
        self._stopped: SimpleQueue[AgentsStopped] = SimpleQueue()
        self._remarked: dict[SlotId, SlotResources] = {}
        """The slots whose devices were counted last: that takes long where they are many."""
        self._without_device: dict[int, str] = {}
        """The warning for each node with fewer GPUs than its processes need."""
        self._sessions = 0
        self._far: FarNodes
        self._session: Session
        self._refused_s = self._looked_s = self._opened_s = time.monotonic()
        self._standing = SlotsChanged(0, 0)
        """The last one that listeners have received."""

    @property
    def workers(self) -> dict[str, int]:
        """The node number of each worker that has slots, or helps those, by address."""
        return self._helpers | {slot.worker: slot.node for slot in self._slots}

    @property
    def _helpers(self) -> dict[str, int]:
        """The node number of each worker that runs `preprocess` for the slots of others."""
        hosts = {one for has in self._slots.values() for one in has.stage_hosts}
        return {one.worker: one.node for one in hosts if self._worker_registry.has(one.worker)}

    @property
    def slot_counts(self) -> Counter[str]:
        """The number of slots of each worker, by address."""
        return Counter(slot.worker for slot in self._slots)

    @property
    def are_complete(self) -> bool:
        """Whether all workers that were there before the job offer their slots."""
        return self._worker_registry.is_complete

    def states(self) -> tuple[SlotState, ...]:
        """Return the states of all slots."""
        return self._worker_registry.states()

    def obstacles(self) -> tuple[str, ...]:
        """Return the reasons that keep workers or their slots from work, in clauses for people."""
        return (
            *(() if self._session.connected else ("no connection to the scheduler",)),
            *self._worker_registry.obstacles(),
            *(f"{worker} cannot run agents: {why}" for worker, why in self._refused.items()),
            *self._far.obstacles(),
            *self._slots_that_wait(),
            *self._workers_that_wait(),
            *(remark.partition(". ")[0] for remark in self._without_device.values()),
        )

    def _workers_that_wait(self) -> tuple[str, ...]:
        """Return how many workers have nobody to help: all slots are lost."""
        if self._slots or not self._known_helpers:
            return ()
        workers = counted(len(self._known_helpers), "worker")
        return (f"{workers} without a GPU, for preprocess only",)

    def _slots_that_wait(self) -> tuple[str, ...]:
        """Return how many leases their workers have not begun, and what these lack."""
        lack = {
            "a Dask thread": len(self._threads.waiting),
            "a GPU that other tasks hold": self._worker_registry.lacking,
        }
        slots = counted(len(self._slots), "slot")
        return tuple(f"{n:,} of {slots} waiting for {what}" for what, n in lack.items() if n)

    def open(self) -> None:
        """Open a session on the cluster; slots appear once their workers are ready."""
        self._far = FarNodes(self._client, self._job, self._say)
        self._session = self._new_session()
        self._session.open()

    def close(self) -> None:
        """Leave the cluster as it was."""
        # Each step also fails if the start was interrupted before it.
        for _, future in self._leases.values():
            future.release()  # an error of the job may hold them, and with them what they need
        with lost_cluster_ignored("to end the agents of far nodes"):
            self._far.close()
        with lost_cluster_ignored("to take the job off the cluster"):
            self._session.close(self._worker_registry.silent)

    def hide_gpus(self) -> None:
        """Offer as many slots as workers have threads: the script uses no GPU."""
        self._gpus_per_process = 0.0
        self._nodes.hide_gpus()
        self._has_other_resources = True
        self._looked_s = 0.0  # with the next turn

    # ---- leases ----

    def submit(self, lease: Lease, slot: SlotId, staged: Mapping[int, Future]) -> None:
        """Send a lease to its slot, with the staged partitions that it needs."""
        worker = slot.worker
        lease = lease if staged else self._far.loaded(lease, worker)
        future = self._session.submit(lease, worker, self._worker_registry.gpus(worker), staged)
        self._leases[lease.id] = (slot, future)
        future.add_done_callback(partial(self._deliver, worker, lease.id))

    def withdraw(self, lease_id: int, *, rest: bool = False) -> None:
        """Ask the worker of a lease to give it back; the answer is a `LeaseAnswered` event."""
        slot, _ = self._leases.get(lease_id, (None, None))
        if slot is not None:
            answered = partial(self._answered, self._news, lease_id)
            given = slot.number, lease_id, rest
            self._calls.ask([slot.worker], "withdraw", *given, answered=answered)

    def _answered(
        self, queue: SimpleQueue[WorkerEvent], lease_id: int, _: str, answer: object
    ) -> None:
        """Queue a worker's answer (called by Dask's loop); an error counts as a refusal."""
        self._heard(queue, LeaseAnswered(lease_id, withdrawn=answer is True))

    def stop_agents(self) -> SimpleQueue[AgentsStopped]:
        """Let all agents shut down, and return the queue of the workers that have done so."""
        self._calls.ask([*self.workers], "stop", answered=self._stop_answered)
        return self._stopped

    def _stop_answered(self, worker: str, answer: object) -> None:
        """Take an answer from Dask's loop: a worker that has an error stops no agents."""
        if answer is not None:
            self._stopped.put(AgentsStopped(worker, ()))

    def take(self, lease_id: int) -> SlotId | None:
        """Return the slot of a lease that came back; None if it had been taken back before."""
        with self._delivering:
            slot, _ = self._leases.pop(lease_id, (None, None))
            self._delivered.discard(lease_id)
        self._done_before.discard(lease_id)
        return slot

    def _deliver(self, worker: str, lease_id: int, future: Future) -> None:
        """Pass on a lease that has ended, once: Dask may call back after it was forgotten."""
        with self._delivering:
            if lease_id in self._delivered or lease_id not in self._leases:
                return
            self._delivered.add(lease_id)
        self._far.deliver(worker, lease_id, self._wake, future)

    def _deliver_forgotten(self) -> None:
        """Pass on leases that ended a second ago without a callback from Dask.

        Dask starts a thread for its callbacks with the first of them. If the system refuses this
        thread, Dask only logs that.
        """
        for lease_id, (slot, future) in list(self._leases.items()):
            if lease_id not in self._delivered and future.done():
                if lease_id in self._done_before:
                    self._deliver(slot.worker, lease_id, future)
                self._done_before.add(lease_id)

    def drop_if_there(self, slot: SlotId, *, expected: bool) -> None:
        """Take a slot out of use, unless its worker has been reported as gone by now."""
        # The news of the worker's loss may wait in the queue. It says whether the worker was told
        # to go, and drops the slots.
        self._hear()
        if slot in self._slots:
            self._drop([slot], expected=expected)

    def _drop(
        self,
        slots: Collection[SlotId],
        *,
        expected: bool = False,
        begun: Collection[int] | None = None,
    ) -> None:
        """Take slots out of use, and cancel their leases, of which only some may have begun."""
        for slot in slots:
            self._slots.pop(slot, None)
        cancelled = {id_: one for id_, (where, one) in self._leases.items() if where in slots}
        for lease_id, future in cancelled.items():
            self.take(lease_id)
            future.cancel()
        if slots:
            waited = frozenset() if begun is None else cancelled.keys() - set(begun)
            self._tell(SlotsLost(tuple(slots), expected, frozenset(waited)))

    def _give_back(self, slots: Collection[SlotId], offering: Collection[int]) -> None:
        """Take slots from living workers; `offering` are the nodes that still offer some."""
        self._drop(slots, expected=True)
        for slot in slots:  # its agent may be idle, and hold the memory of a GPU
            why = "another worker of its node has a free GPU"
            if slot.node not in offering:
                why = "its node has no GPU"
            self._say("info", f"slot {slot.number} of {slot.worker} ends, since {why}.")
            self._calls.ask([slot.worker], "kill", slot.number)

    # ---- what happens on the cluster ----

    def turn(self, work_s: float) -> None:
        """Process the events since the last turn; `work_s` is the remaining work in seconds."""
        if self._session.lost:
            self._go_on_elsewhere()
            return
        changed = self._hear()
        now = time.monotonic()
        self._worker_registry.tick(now)
        watchdog = self._worker_registry.watchdog(self._slots)
        for why in watchdog.values():
            self._say("warning", f"{why}: it is used no more.")
        self._drop(watchdog)
        self._count_threads()
        if changed or now - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now
            self._deliver_forgotten()
            self._look_for_slots()
            demand = self._session.scaling_demand
            demand.wish(work_s, workers=bool(self._slots))
            if not self._slots and (told := demand.ask_for_lost_workers()):
                self._say("warning", told)
        if self._refused and not self._slots and now - self._refused_s > REFUSED_FOR_S:
            worker, why = next(iter(self._refused.items()))
            raise DaskprsError(_refusal(worker, why))

    def _count_threads(self) -> None:
        """Report to the ledger which workers have no idle thread, and which leases wait for one."""
        counted = self._worker_registry.threads()
        counted = counted._replace(waiting=counted.waiting & self._leases.keys())
        if counted.waiting or counted != self._threads:
            self._threads = counted
            self._tell(counted)

    def _take_answer(self, lease_id: int, *, withdrawn: bool) -> None:
        """Report a worker's answer to the ledger, and drop the lease if it was withdrawn."""
        if lease_id not in self._leases:
            return
        if withdrawn:
            slot, future = self._leases[lease_id]
            self.take(lease_id)
            future.cancel()
            told = f"lease {lease_id} found no idle Dask thread on {slot.worker}: it is moved."
            self._say("info", told)
        else:  # else it would be asked for again and again until the next heartbeat
            self._worker_registry.keep(lease_id)
        self._tell(LeaseWithdrawn(lease_id) if withdrawn else LeaseKept(lease_id))

    def is_there(self, worker: str) -> bool:
        """Say whether a worker is still there."""
        self._hear()
        self._worker_registry.tick(time.monotonic())
        return self._worker_registry.has(worker) and not self._session.lost

    def _hear(self) -> bool:
        changed = False
        try:
            while True:
                changed |= self._take_note(self._news.get_nowait())
        except Empty:
            return changed

    def _take_note(self, news: WorkerEvent) -> bool:
        match news:
            case Heartbeat():
                return self._worker_registry.hear(news)
            case WorkersFound(workers):
                self._worker_registry.wait_for(workers)
            case WorkerLost():
                self._lose(news)
                return True
            case WorkerRefused(worker, why):
                self._refuse(worker, why)
            case WorkerLeaving() | AgentsStopped():
                pass  # it is lost soon, or has a queue of its own
            case StagesChanged():
                self._report_stages(news)
            case NodeMeasured(worker, usage):
                self._report_usage(worker, usage)
            case PermitsFailed(worker, traceback):
                raise RuntimeError(NO_PERMITS.format(worker, traceback))
            case LeaseAnswered(lease_id, withdrawn):
                self._take_answer(lease_id, withdrawn=withdrawn)
            case _:
                assert_never(news)
        return False

    def _refuse(self, worker: str, why: str) -> None:
        """Note a worker that cannot run agents of the job."""
        if worker not in self._refused:  # the scheduler reports it, and the worker itself
            self._say("warning", _refusal(worker, why))
            self._refused_s = time.monotonic()
        self._refused[worker] = why
        self._worker_registry.wait_no_more([worker])

    def _lose(self, news: WorkerLost) -> None:
        """Take leave of a worker and of its slots, in words where a lease was lost with it."""
        self._worker_registry.lose(news.worker)
        self._refused.pop(news.worker, None)
        gone = [slot for slot in self._slots if slot.worker == news.worker]
        if news.worker in self._known_helpers:
            self._known_helpers.remove(news.worker)
            self._say("info", f"the worker {news.worker} has gone, which ran preprocess for slots.")
        if gone:
            is_loss = bool(news.leases) and not news.expected
            departure = _departure(news.worker, is_loss=is_loss)
            self._say("warning" if is_loss else "info", departure)
        self._drop(gone, expected=news.expected, begun=news.leases)
        self._report_standing()

    def _report_stages(self, news: StagesChanged) -> None:
        """Report on stage processes of nodes without slots; those of slots come with leases."""
        for event in news.events:
            pid = event.pid if isinstance(event, AgentStarted) else 0
            place = Place(news.node, event.process, news.host, pid)
            self._listeners.tell(AgentChanged(place, event))

    def _report_usage(self, worker: str, usage: NodeUsage | str) -> None:
        """Report what a worker has measured; of several on a node, one speaks for the node."""
        nodes = self.workers
        if isinstance(usage, str):
            self._say("warning", f"the resources of {worker} are no longer measured: {usage}")
        elif worker in nodes:
            node = nodes[worker]
            first = min(address for address, of in nodes.items() if of == node)
            self._listeners.tell(UsageMeasured(node, usage, of_node=worker == first))

    def _heard(self, queue: SimpleQueue[WorkerEvent], news: WorkerEvent) -> None:
        """Queue an event (called by Dask's loop); the queue of a lost session is read no more."""
        if isinstance(news, AgentsStopped):
            self._stopped.put(news)
            return
        queue.put(news)
        # A heartbeat comes twice a second from each worker. Those of known workers wait for the
        # next turn, so that a large cluster does not keep the driver's loop awake.
        if not isinstance(news, Heartbeat | NodeMeasured) or not self._worker_registry.has(
            news.worker
        ):
            self._wake(None)

    def _look_for_slots(self) -> None:
        if time.monotonic() - self._opened_s > AWAITED_S:
            self._worker_registry.wait_no_more()
        offered = self._worker_registry.offered(self._far.ready)
        gone = [slot for slot in self._slots if slot not in offered]
        new = [slot for slot in offered if slot not in self._slots]
        for worker in dict.fromkeys(slot.worker for slot in gone):
            if not self._worker_registry.has(worker):
                told = f"the worker {worker} has been silent for too long: it is taken for lost."
                self._say("warning", told)
        living = [slot for slot in gone if self._worker_registry.has(slot.worker)]
        self._give_back(living, {slot.node for slot in offered})
        self._drop([slot for slot in gone if slot in self._slots])
        for slot, has in offered.items():
            self._offer(slot, has)
        self._has_other_resources = False
        for worker in self._helpers.keys() - self._known_helpers:
            self._say("info", f"the worker {worker} has no GPU: it runs preprocess for the slots.")
        self._known_helpers |= self._helpers.keys()
        threads = {slot.worker: offered[slot].threads for slot in new if self._prepares}
        for worker, count in threads.items():
            # Agents are forked from a process that imports pandas first. Here it does so while Dask
            # computes the first partitions.
            self._calls.ask([worker], "prepare", count)
        self._report_standing()
        if self._worker_registry.is_complete and offered != self._remarked:
            self._remarked = offered
            remarks = without_device(offered, self._gpus_per_process)
            for node, remark in remarks.items():
                if self._without_device.get(node) != remark:
                    self._say("warning", remark)
            self._without_device = remarks

    def _offer(self, slot: SlotId, has: SlotResources) -> None:
        """Report a slot that is new, has other resources, or gets other help."""
        hosts = self._far.alike(slot.worker, has.stage_hosts)
        known = None if self._has_other_resources else self._slots.get(slot)
        told = (known or has)._replace(stage_hosts=hosts)
        if told != self._slots.get(slot):
            self._slots[slot] = told
            self._tell(SlotAdded(slot, told, self._worker_registry.ends_at_s(slot.worker)))

    def _report_standing(self) -> None:
        """Report how many nodes and slots there are, if that has changed."""
        standing = SlotsChanged(len({slot.node for slot in self._slots}), len(self._slots))
        if standing != self._standing:
            self._standing = standing
            self._listeners.tell(standing)

    # ---- the connection ----

    def _new_session(self) -> Session:
        session = Session(
            self._client,
            self._job,
            self._far.origin,
            partial(self._heard, self._news),
            number=self._sessions,
        )
        self._sessions += 1
        self._opened_s = time.monotonic()
        return session

    def _go_on_elsewhere(self) -> None:
        """Go on with another session once the client is connected again.

        The scheduler has ended the last session's agents, or has ended itself. Their mini-batches
        count as not begun.
        """
        if self._worker_registry.states() or self._slots:
            told = "the connection to the scheduler was lost; the job goes on when it is back."
            self._say("warning", told)
        self._drop(list(self._slots), expected=True)
        self._worker_registry.lose_all()
        if self._session.connected:
            self._session.forget()
            self._news = SimpleQueue()
            session = self._new_session()
            try:
                session.open()
            except OSError:
                session.forget()
                return  # lost again; the next turn tries again
            self._session = session


def _departure(worker: str, *, is_loss: bool) -> str:
    if not is_loss:
        return f"the worker {worker} has left: what it has not finished runs elsewhere."
    return (
        f"the worker {worker} was lost: what it has not handed back runs again, one mini-batch at "
        "a time, as one of them may have ended the worker."
    )


def _refusal(worker: str, why: str) -> str:
    return (
        f"the worker {worker} cannot run agents: {why}. Install the same versions of daskprs and "
        "of what it needs on the scheduler and on all workers."
    )
