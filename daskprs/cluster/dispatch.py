"""The driver's one loop: events into the ledger, its actions out to the cluster and the disk."""

from __future__ import annotations

import gc
import pickle
import time
from collections import deque
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, assert_never

from daskprs.agent import pools
from daskprs.cluster.connect import workers_of
from daskprs.cluster.far_nodes import FarNodes
from daskprs.cluster.lease import (
    failure_of_lease,
    fetched,
    lease_key,
    plugin_name,
    run_lease,
    states_topic,
)
from daskprs.cluster.stopping import stopped
from daskprs.cluster.worker_plugin import AgentsPlugin
from daskprs.core.actions import (
    Abort,
    Commit,
    FailAttempt,
    Finish,
    LeaseFailed,
    SlotAdded,
    SlotLost,
    Submit,
    Ticked,
)
from daskprs.core.ending import Ending, JobStatus
from daskprs.core.events import (
    NOWHERE,
    AgentChanged,
    AttemptFailed,
    MiniBatchesDone,
    Place,
    Remarked,
    SlotsChanged,
    Stood,
)

if TYPE_CHECKING:
    from distributed import Client, Future

    from daskprs.agent.messages import JobSpec
    from daskprs.cluster.slots import Nodes
    from daskprs.core.actions import Action, LedgerEvent, SlotId
    from daskprs.core.events import SlotState
    from daskprs.core.lease import Lease
    from daskprs.core.ledger import Ledger
    from daskprs.core.limits import Limits
    from daskprs.output.store import ResultStore
    from daskprs.report.listeners import Listeners

TICK_S = 0.25
"""How often the loop turns when nothing comes in."""
SLOTS_EVERY_S = 1.0
"""How often the cluster is asked for its workers."""


class Dispatcher:
    """Feeds the slots of a cluster from a ledger, and a store from what comes back.

    Everything happens in the thread that calls `run`; threads of Dask only put finished futures
    into the inbox.
    """

    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        store: ResultStore,
        listeners: Listeners,
        nodes: Nodes,
        job: JobSpec,
        limits: Limits,
    ) -> None:
        self._client = client
        self._ledger = ledger
        self._store = store
        self._listeners = listeners
        self._nodes = nodes
        self._job = job
        self._limits = limits
        self._inbox: SimpleQueue[tuple[int, Future]] = SimpleQueue()
        self._futures: dict[int, tuple[SlotId, Future]] = {}
        self._slots: dict[SlotId, None] = {}
        self._states: dict[str, tuple[SlotState, ...]] = {}
        self._ending: Ending | None = None
        self._started_s = self._settled_s = self._asked_s = time.monotonic()

    def run(self) -> Ending:
        """Work until everything is settled or the ledger gives up."""
        job_id = self._job.job_id
        try:
            self._client.subscribe_topic(states_topic(job_id), self._slots_told)
            self._far = FarNodes(self._client, self._job)
            origin = self._far.origin
            self._client.register_plugin(AgentsPlugin(self._job, self._limits, origin))
            return self._work()
        except BaseException:
            pools.close(job_id)  # at once, without asking Dask: this may be Ctrl-C
            raise
        finally:
            gc.unfreeze()
            # Any of it is refused when the start was broken off before it, or the cluster is gone:
            # that must not hide why.
            with suppress(Exception):
                self._far.close()
            with suppress(Exception):
                self._client.unsubscribe_topic(states_topic(job_id))
            with suppress(Exception):
                self._client.unregister_worker_plugin(plugin_name(job_id))

    def _work(self) -> Ending:
        # What the caller's process holds already is no garbage of ours: each full collection
        # would walk through all of it, and a job of many mini-batches makes many of them.
        gc.freeze()
        self._look_for_slots()
        while self._ending is None:
            self._turn()
        if self._ending.status is JobStatus.COMPLETED:
            self._stop_agents()
        return self._ending

    # ---- one turn of the loop ----

    def _turn(self) -> None:
        try:
            self._lease_ended(*self._inbox.get(timeout=TICK_S))
            until = time.monotonic() + TICK_S
            while self._ending is None and time.monotonic() < until:
                self._lease_ended(*self._inbox.get_nowait())
        except Empty:
            pass
        now = time.monotonic()
        if now - self._asked_s >= SLOTS_EVERY_S:
            self._look_for_slots()
        self._tell_ledger(Ticked())
        self._store.sync_if_due(now)
        self._tell_standing()

    def _tell_standing(self) -> None:
        now = time.monotonic()
        self._listeners.tell(
            Stood(
                self._ledger.standing(),
                # A copy: Dask's loop puts in what the next worker tells at any time.
                tuple(state for states in list(self._states.values()) for state in states),
                now - self._started_s,
                now - self._settled_s,
            )
        )

    def _lease_ended(self, lease_id: int, future: Future) -> None:
        """Take what a lease came back with."""
        if lease_id not in self._futures:
            return
        slot, _ = self._futures.pop(lease_id)
        done = future.status == "finished"
        returned = fetched(future, self._client, slot.worker) if done else None
        if returned is not None:
            place = Place(slot.node, returned.process, returned.host, returned.pid)
            for event in returned.agent_events:
                self._listeners.tell(AgentChanged(place._replace(process=event.process), event))
            self._tell_ledger(returned, place)
        elif future.status == "error":
            failure = failure_of_lease(future)
            told = f"a lease could not be worked on: {failure}"
            self._listeners.tell(Remarked("warning", told))
            self._tell_ledger(LeaseFailed(lease_id, failure))
        else:
            self._drop_slot(slot)

    # ---- slots ----

    def _look_for_slots(self) -> None:
        self._asked_s = time.monotonic()
        workers = workers_of(self._client)
        if workers is None:
            return
        offered = dict.fromkeys(self._nodes.slots(self._far.ready(workers)))
        gone = [slot for slot in self._slots if slot not in offered]
        new = [slot for slot in offered if slot not in self._slots]
        for slot in gone:
            self._drop_slot(slot)
        for slot in new:
            self._slots[slot] = None
            self._tell_ledger(SlotAdded(slot))
        if gone or new:
            nodes = {slot.node for slot in self._slots}
            self._listeners.tell(SlotsChanged(len(nodes), len(self._slots)))

    def _drop_slot(self, slot: SlotId) -> None:
        """Take a slot out of use, and take back what it was working on."""
        self._slots.pop(slot, None)
        self._states.pop(slot.worker, None)
        for lease_id, (where, future) in list(self._futures.items()):
            if where == slot:
                del self._futures[lease_id]
                future.cancel()
        self._tell_ledger(SlotLost(slot))

    def _slots_told(self, event: tuple[float, Any]) -> None:
        """Take what a worker tells of its slots (called by Dask's loop)."""
        _, (worker, states) = event
        self._states[worker] = pickle.loads(states)

    # ---- actions ----

    def _tell_ledger(self, event: LedgerEvent, place: Place = NOWHERE) -> None:
        left = deque(self._ledger.handle(event, time.monotonic()))
        try:
            while left and self._ending is None:
                self._act(left[0], place)
                left.popleft()
        except BaseException:
            # The result must not say that something was done which no journal knows of.
            self._ledger.take_back(left)
            raise

    def _act(self, action: Action, place: Place) -> None:
        match action:
            case Submit(lease, slot):
                self._submit(lease, slot)
            case Commit(mini_batches):
                made = action.made
                self._store.commit(mini_batches, made)
                self._settled_s = time.monotonic()
                self._listeners.tell(MiniBatchesDone(place, mini_batches, made.outcomes))
            case FailAttempt(mini_batch, outcome, final, charged):
                if not outcome.started:  # lost with its node: the ledger has no clock
                    outcome = outcome._replace(started=time.time())
                self._store.attempt_failed(mini_batch, outcome, place, final=final, charged=charged)
                if final:
                    self._settled_s = time.monotonic()
                self._listeners.tell(AttemptFailed(place, mini_batch, outcome, final, charged))
            case Abort(reason, failure):
                self._ending = Ending(JobStatus.FAILED, reason, failure)
            case Finish():
                self._ending = Ending(JobStatus.COMPLETED)
            case _:
                assert_never(action)

    def _submit(self, lease: Lease, slot: SlotId) -> None:
        future = self._client.submit(
            run_lease,
            self._far.loaded(lease, slot.worker),
            key=lease_key(lease),
            workers=[slot.worker],
            retries=0,
            pure=False,
        )
        self._futures[lease.id] = (slot, future)
        put = self._inbox.put
        future.add_done_callback(partial(self._far.deliver, slot.worker, lease.id, put))

    def _stop_agents(self) -> None:
        """Let the agents shut down, and tell what they tell."""
        nodes = {slot.worker: slot.node for slot in self._slots}
        timeout_s = self._limits.shutdown_timeout_s
        for told in stopped(self._client, self._job.job_id, nodes, timeout_s):
            if told is None:
                self._tell_standing()
            else:
                self._listeners.tell(told)
