"""One slot of a worker: at most one agent at a time, and the agent's lease.

`LeaseRun` records which mini-batches of the lease are done, begun, and not begun; it says whom to
blame when the agent ends.
"""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from daskprs.agent.protocol.messages import ExtendLease, Outcomes, RunLease, TruncateLease
from daskprs.agent.protocol.shared_page import Activity, Phase
from daskprs.agent.supervision.supervisor import (
    EXIT_GRACE_S,
    LOOK_EVERY_S,
    Supervisor,
)
from daskprs.core.columnar import ColumnBatch
from daskprs.core.events import Place, SlotState
from daskprs.core.lease import (
    AgentAssignment,
    AgentEvent,
    AgentExited,
    AgentReady,
    AgentStarted,
    Death,
    InitFailed,
    Lease,
    LeaseReturned,
    Results,
)
from daskprs.core.outcomes import Failure, Outcome, Printed, Status
from daskprs.core.usage import ProcessUsage
from daskprs.system.linux import descendants
from daskprs.system.log_cap import cut
from daskprs.system.process_tree import pss_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from daskprs.core.mini_batch import Assigned

RETURN_BYTES = 8 << 20
"""Bytes of results that are handed back without waiting for more."""
HOLD_BACK_S = 2.0
"""Seconds without a result after which mini-batches not begun are given to other agents."""
HOST = socket.gethostname()


class Slot:
    """Runs leases one after the other, each in the slot's agent or in a new one.

    All methods but `state` and `kill` are called by the thread of the lease.
    """

    def __init__(self, employ: Callable[[int, AgentAssignment], Supervisor]) -> None:
        self._employ = employ
        """Starts an agent with an assignment on the node of a number."""
        self._agent: Supervisor | None = None
        self._node = 0
        self._run: LeaseRun | None = None
        self._orders = 0
        self._busy = threading.Lock()
        """Held by the running lease; a cancelled lease may still hold it when the next comes."""
        self._events: list[AgentEvent] = []
        self._served = AgentStarted("", 0)
        """The agent that runs or ran the lease; it may have ended since."""

    def run(self, lease: Lease) -> LeaseReturned:
        """Work on a lease until it is done, or until results or work must be handed back."""
        with self._busy:
            if lease.continues is None:
                return self._begin(lease)
            if lease.work and self._run is not None and self._agent is not None:
                self._run.extend(lease.work)
                self._run.return_after_s = lease.return_after_s
                self._agent.send(ExtendLease(self._run.order, lease.work))
            return self._watch(lease)

    def stop(self) -> tuple[AgentEvent, ...]:
        """Shut down the agent, and return the agent events."""
        if self._agent is not None:
            self._dismiss(self._agent.stop())
        return self._taken_events()

    def kill(self) -> None:
        """End the agent at once; the thread of the lease sees it as a death."""
        agent = self._agent
        if agent is not None:
            agent.end()

    def state(self) -> SlotState:
        """Return what the slot is doing; may be called by any thread."""
        agent, run = self._agent, self._run
        vacant = SlotState(Place(self._node, "", HOST), "starting", 0.0, None)
        if agent is None:
            return vacant
        try:
            activity = agent.page.look()
        except ValueError:  # the agent has ended and its page is closed
            return vacant
        place = Place(self._node, agent.spec.name, HOST, agent.pid)
        at_hand = self._index_at_hand(activity)
        size = None if run is None or at_hand is None else run.size_at(activity.position)
        printed = agent.page.printed()
        phase, age_s = activity.phase.name.lower(), activity.age_s()
        return SlotState(place, phase, age_s, at_hand, printed, size)

    def usage(self, of_devices: Mapping[int, int]) -> ProcessUsage | None:
        """Return what the agent uses; may be called by any thread.

        `of_devices` has the memory on devices by process id.
        """
        agent = self._agent
        if agent is None:
            return None
        try:
            sample = agent.sample()
        except ValueError:  # the agent has ended and its page is closed
            return None
        pids = (agent.pid, *descendants(agent.pid))
        on_devices = [of_devices[pid] for pid in pids if pid in of_devices]
        return ProcessUsage(
            agent.spec.name,
            agent.pid,
            sample,
            pss_bytes(pids),
            sum(on_devices) if on_devices else None,
        )

    def _index_at_hand(self, activity: Activity) -> int | None:
        """Return the mini-batch that the agent turned to."""
        run = self._run
        if run is None or activity.lease_id != run.order:
            return None
        return run.index_at(activity.position)

    # ---- the agent ----

    def _ready_agent(self, assignment: AgentAssignment | None) -> Supervisor | None:
        """Return the agent, or a new one for the assignment; None without agent or assignment."""
        agent = self._agent
        if agent is not None:
            if not agent.alive():
                returncode = agent.end(grace_s=EXIT_GRACE_S)
                self._lose(agent, returncode, agent.death(returncode, "while it was idle").message)
            elif assignment is None or assignment.process == agent.spec.name:
                return agent
            else:
                self._dismiss(agent.stop())
        return None if assignment is None else self._started(assignment)

    def _started(self, assignment: AgentAssignment) -> Supervisor | None:
        """Return a new agent; None when `init` failed."""
        begun = time.monotonic()
        self._agent = agent = self._employ(self._node, assignment)
        agent.index_at_hand = self._index_at_hand
        name = agent.spec.name
        self._served = AgentStarted(name, agent.pid)
        self._events.append(self._served)
        failure = agent.make_ready()
        elapsed = time.monotonic() - begun
        if failure is None:
            self._events.append(AgentReady(name, elapsed))
            return agent
        self._events.append(InitFailed(name, failure, elapsed))
        self._lose(agent, agent.end(grace_s=EXIT_GRACE_S), failure.message or failure.kind)
        return None

    def _lose(self, agent: Supervisor, returncode: int, reason: str) -> None:
        """Dismiss an agent that did not end on an order of its own."""
        samples = agent.usage.samples
        self._dismiss(
            AgentExited(agent.spec.name, returncode, reason, expected=False, usage=samples)
        )

    def _dismiss(self, exited: AgentExited) -> None:
        if self._agent is None:
            return
        self._events.append(exited)
        self._agent.process.close()
        spec = self._agent.spec
        for log in () if spec.far else (spec.stdout, spec.stderr):
            cut(log)
        shutil.rmtree(spec.working_dir, ignore_errors=True)
        self._agent = None

    def _taken_events(self) -> tuple[AgentEvent, ...]:
        events = tuple(self._events)
        self._events.clear()
        return events

    # ---- the lease ----

    def _begin(self, lease: Lease) -> LeaseReturned:
        self._node = lease.node
        agent = self._ready_agent(lease.assignment)
        self._orders += 1
        self._run = LeaseRun(self._orders, lease.work, lease.return_after_s)
        if agent is None:
            return self._returned(lease, untouched=self._run.left, vacant=lease.assignment is None)
        agent.send(RunLease(self._orders, lease.work, lease.prefetch))
        if lease.return_when_ready:
            return self._returned(lease, running=self._run.left)
        return self._watch(lease)

    def _watch(self, lease: Lease) -> LeaseReturned:
        agent, run = self._agent, self._run
        if agent is None or run is None:
            return self._returned(lease)
        while True:
            due_in_s = run.due_in_s()
            wait_s = LOOK_EVERY_S if due_in_s is None else min(LOOK_EVERY_S, due_in_s)
            self._receive(agent.receive(wait_s), run)
            if run.finished:
                return self._returned(lease)
            if agent.gone:
                return self._died(lease, agent, run)
            overdue = agent.overdue()
            if overdue is not None:
                return self._timed_out(lease, agent, run, overdue)
            too_big = agent.too_big()
            if too_big is not None:
                return self._died(lease, agent, run, too_big)
            if run.due_in_s() == 0.0 and (returned := self._hand_back(lease, agent, run)):
                return returned

    def _receive(self, messages: list[object], run: LeaseRun, below: int | None = None) -> None:
        for message in messages:
            # Outcomes of an order that was taken back before it began are stale.
            if isinstance(message, Outcomes) and message.lease_id == run.order:
                run.receive(message, below)

    def _hand_back(self, lease: Lease, agent: Supervisor, run: LeaseRun) -> LeaseReturned | None:
        """Hand back finished results; also the work behind a mini-batch that takes long."""
        untouched: tuple[int, ...] = ()
        if run.stuck:
            kept = agent.page.claimed(run.order)
            if kept < run.kept:
                kept = agent.page.recall(run.order)
                agent.send(TruncateLease(run.order, kept))
            untouched = run.keep(kept)
            if not untouched:
                return None
        return self._returned(lease, running=run.left, untouched=untouched)

    def _died(
        self, lease: Lease, agent: Supervisor, run: LeaseRun, why: Failure | None = None
    ) -> LeaseReturned:
        returncode = agent.end(grace_s=0.0 if why else EXIT_GRACE_S)
        self._receive(agent.drain(), run)
        failure = why or agent.death(returncode, "while it was at work")
        last = agent.page.look()
        blame = blame_death(run, last, failure, agent.printed())
        blame = blame.with_peak(agent.peak_bytes(last.age_s()))
        reason = failure.message
        if agent.process.orphaned:
            blame = Blame(None, None, run.left)
            reason = "the process that it was forked from is gone, and took it along"
        self._lose(agent, returncode, reason)
        return self._blamed(lease, run, blame)

    def _timed_out(
        self, lease: Lease, agent: Supervisor, run: LeaseRun, overdue: Activity
    ) -> LeaseReturned:
        returncode = agent.end(dump=True)
        self._receive(agent.drain(), run, below=overdue.position)
        seconds = overdue.age_s()
        failure = agent.timeout(overdue)
        blame = blame_timeout(run, overdue, failure, agent.printed())
        blame = blame.with_peak(agent.peak_bytes(seconds))
        self._lose(agent, returncode, failure.message)
        return self._blamed(lease, run, blame)

    def _blamed(self, lease: Lease, run: LeaseRun, blame: Blame) -> LeaseReturned:
        if blame.outcome is not None:
            run.charge(blame.outcome)
        return self._returned(lease, untouched=blame.untouched, death=blame.death)

    def _returned(
        self,
        lease: Lease,
        *,
        running: tuple[int, ...] = (),
        untouched: tuple[int, ...] = (),
        vacant: bool = False,
        death: Death | None = None,
    ) -> LeaseReturned:
        run = self._run
        if not running:
            self._run = None
        return LeaseReturned(
            lease_id=lease.id,
            process=self._served.process,
            pid=self._served.pid,
            host=HOST,
            results=() if run is None else run.share(),
            running=running,
            untouched=untouched,
            recalled=run is not None and run.recalled,
            vacant=vacant,
            death=death,
            agent_events=self._taken_events(),
        )


class LeaseRun:
    """The supervisor's record of an order: a lease and the leases that continue it.

    Outcomes arrive in the order of the work, so two numbers suffice: positions below `received`
    are done, and positions up to `kept` belong to the agent.
    """

    def __init__(
        self, order: int, work: ColumnBatch[Assigned], return_after_s: float = 1.0
    ) -> None:
        self.order = order
        """The order's number between supervisor and agent."""
        self.return_after_s = return_after_s
        """Seconds from the first finished mini-batch until the finished ones are handed back."""
        self.received = 0
        self.kept = -1
        self.recalled = False
        """Whether mini-batches not begun were taken back since the last outcome, or none were left
        to take back."""
        self._work: deque[tuple[int, int, ColumnBatch[Assigned]]] = deque()
        """First position, position behind the last, and work of each lease. Done leases and
        work that was taken back are dropped."""
        self._quiet_since_s = time.monotonic()
        self._first_s: float | None = None
        self._results: list[Results] = []
        self._payload_bytes = 0
        self.extend(work)

    @property
    def finished(self) -> bool:
        """Whether no mini-batch of the order is left."""
        return self.received > self.kept

    def extend(self, work: ColumnBatch[Assigned]) -> None:
        """Append the work of a lease that continues the last one."""
        if self.finished:
            self._quiet_since_s = time.monotonic()
        first = self.kept + 1
        self.kept += len(work)
        self._work.append((first, self.kept + 1, work))

    def receive(self, message: Outcomes, below: int | None = None) -> None:
        """Record the agent's outcomes; with `below`, only those before that position."""
        results = message.results
        if below is not None:
            results = results.only(range(min(len(results.outcomes), below - self.received)))
        now = self._quiet_since_s = time.monotonic()
        if results.outcomes:
            self._first_s = self._first_s or now
            self._results.append(results)
            self.recalled = False
        self.received += len(results.outcomes)
        self._payload_bytes += len(results.payload)
        while self._work and self._work[0][1] <= self.received:
            self._work.popleft()

    def due_in_s(self) -> float | None:
        """Return the seconds until results or work must be handed back; None without a deadline."""
        now = time.monotonic()
        last = self._results and self.received == self.kept
        if last or self._payload_bytes >= RETURN_BYTES:
            return 0.0  # more work may come while the last mini-batch runs
        if self._first_s is not None:
            return max(0.0, self._first_s + self.return_after_s - now)
        if not self.recalled and self.kept > self.received:
            return max(0.0, self._quiet_since_s + HOLD_BACK_S - now)
        return None

    @property
    def stuck(self) -> bool:
        """Whether a long mini-batch holds up others that could be taken back."""
        quiet_s = time.monotonic() - self._quiet_since_s
        return not self.recalled and self.kept > self.received and quiet_s >= HOLD_BACK_S

    def keep(self, last: int) -> tuple[int, ...]:
        """Give up the mini-batches beyond a position, and return their indexes."""
        last = min(self.kept, max(last, self.received - 1))
        given_back = self.indexes(last + 1, self.kept + 1)
        self.kept = last
        self._work = deque(
            (first, min(beyond, last + 1), work)
            for first, beyond, work in self._work
            if first <= last
        )
        self.recalled = True
        return given_back

    def charge(self, outcome: Outcome) -> None:
        """Add the outcome of an attempt that the supervisor has ended."""
        self._results.append(Results(ColumnBatch((outcome,))))

    def share(self) -> tuple[Results, ...]:
        """Remove and return the results that have not been handed over yet."""
        share = tuple(self._results)
        self._results.clear()
        self._payload_bytes = 0
        self._first_s = None
        return share

    def at(self, position: int) -> Assigned | None:
        """Return the mini-batch at a position; None if it is unknown, done or taken back."""
        work, place = self._place(position)
        return None if work is None else work[place]

    def index_at(self, position: int) -> int | None:
        """Return the index of the mini-batch at a position, without unpacking its lease."""
        work, place = self._place(position)
        return None if work is None else work.column("mini_batch.index")[place]

    def size_at(self, position: int) -> int | None:
        """Return the size of the mini-batch at a position, in the same way."""
        work, place = self._place(position)
        if work is None:
            return None
        size: int | None = work.column("mini_batch.size_bytes")[place]
        return work.column("mini_batch.items")[place] if size is None else size

    def _place(self, position: int) -> tuple[ColumnBatch[Assigned] | None, int]:
        for first, beyond, work in tuple(self._work):  # progress looks from another thread
            if first <= position < beyond:
                return work, position - first
        return None, 0

    def indexes(self, first: int, beyond: int) -> tuple[int, ...]:
        """Return the indexes of the mini-batches at these positions that are not done."""
        columns = [
            (start, min(beyond, end), work.column("mini_batch.index"))
            for start, end, work in self._work
            if start < beyond and first < end
        ]
        return tuple(
            index
            for start, end, column in columns
            for index in column[max(0, first - start) : end - start]
        )

    @property
    def left(self) -> tuple[int, ...]:
        """Indexes of the agent's mini-batches without an outcome."""
        return self.indexes(self.received, self.kept + 1)


class Blame(NamedTuple):
    """Mini-batches to blame for the end of an agent: `outcome`, `death` or neither is set."""

    outcome: Outcome | None
    """The attempt that exceeded a timeout by itself."""
    death: Death | None
    """The attempts that may have ended the agent or held it up."""
    untouched: tuple[int, ...]

    def with_peak(self, peak_bytes: int) -> Blame:
        """Return the same with the highest memory of the agent."""
        outcome, death = self.outcome, self.death
        return self._replace(
            outcome=outcome and outcome._replace(peak_bytes=peak_bytes),
            death=death
            and death._replace(
                suspects=tuple(one._replace(peak_bytes=peak_bytes) for one in death.suspects)
            ),
        )


def blame_timeout(
    run: LeaseRun, judged: Activity, failure: Failure, printed: Printed | None = None
) -> Blame:
    """Charge the attempt that exceeded its timeout, unless another may have held it up.

    It is charged even if it ended between the verdict and the kill (a signal wakes many a
    sleeper): it had taken too long by then. While another mini-batch is being loaded ahead, the
    culprit is unknown: loading code that keeps the GIL, or stops the process, holds up `run`.
    Then both run again alone, as after a death.
    """
    if judged.lease_id != run.order or judged.position < run.received:
        return Blame(None, None, run.left)
    running = judged.phase is Phase.RUNNING
    status = Status.RUN_TIMEOUT if running else Status.LOAD_TIMEOUT
    outcome = _outcome(run, judged, judged.position, status, failure, printed)
    if judged.phase is not Phase.LOADING and judged.position < judged.loading <= run.kept:
        ahead = _outcome(run, judged, judged.loading, Status.LOAD_TIMEOUT, failure)
        return Blame(None, Death((outcome, ahead)), _others(run, outcome, ahead))
    return Blame(outcome, None, _others(run, outcome))


def blame_death(
    run: LeaseRun, last: Activity, failure: Failure, printed: Printed | None = None
) -> Blame:
    """Return the attempts that may have ended the agent: the running one and the one loading."""
    if last.lease_id != run.order:
        return Blame(None, None, run.left)
    lost = list(range(run.received, last.done))
    suspects = _at_hand(run, last) or lost[-1:]
    alone = () if not lost or lost[-1] in suspects else run.indexes(lost[-1], lost[-1] + 1)
    if not suspects:
        return Blame(None, None, run.left)
    outcomes = tuple(
        _outcome(run, last, position, Status.PROCESS_DIED, failure, printed)
        for position in suspects
    )
    return Blame(None, Death(outcomes, alone), _others(run, *outcomes))


def _others(run: LeaseRun, *blamed: Outcome) -> tuple[int, ...]:
    indexes = {outcome.index for outcome in blamed}
    return tuple(index for index in run.left if index not in indexes)


def _at_hand(run: LeaseRun, last: Activity) -> list[int]:
    positions = []
    if last.phase in (Phase.LOADING, Phase.RUNNING, Phase.RETURNING):
        positions.append(last.position)
    positions.append(last.loading)
    mine = [position for position in positions if max(run.received, last.done) <= position]
    return list(dict.fromkeys(position for position in mine if position <= run.kept))


def _outcome(
    run: LeaseRun,
    last: Activity,
    position: int,
    status: Status,
    failure: Failure,
    printed: Printed | None = None,
) -> Outcome:
    assigned = run.at(position)
    assert assigned is not None, "only what is not done is blamed"  # noqa: S101 - for the types
    mini_batch, attempt = assigned
    at_hand = position == last.position
    seconds = last.age_s() if at_hand else 0.0
    return Outcome(
        index=mini_batch.index,
        attempt=attempt,
        status=status,
        total=(last.total if at_hand else 0) or mini_batch.items or 0,
        succeeded=0,
        started=time.time() - seconds,
        elapsed_s=seconds,
        run_s=seconds if at_hand and last.phase is Phase.RUNNING else 0.0,
        cpu_s=0.0,
        failure=failure,
        printed=printed if at_hand else None,
    )
