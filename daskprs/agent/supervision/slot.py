"""One slot of a worker: at most one agent at a time, and the agent's lease."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from daskprs.agent.protocol.messages import ExtendLease, Outcomes, RunLease, TruncateLease
from daskprs.agent.supervision.lease_run import Blame, LeaseRun, blame_death, blame_timeout
from daskprs.agent.supervision.supervisor import (
    EXIT_GRACE_S,
    LOOK_EVERY_S,
    MissedDeadline,
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
from daskprs.system.log_cap import cut

if TYPE_CHECKING:
    from daskprs.core.outcomes import Failure, Outcome

HOST = socket.gethostname()
Employ = Callable[[int, AgentAssignment], Supervisor]
"""Starts an agent with an assignment on the node of a number."""


class Slot:
    """Runs leases one after the other, each in the slot's agent or in a new one.

    All methods but `state` and `kill` are called by the thread of the lease.
    """

    def __init__(self, employ: Employ) -> None:
        self._employ = employ
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
            return self._work_on(lease)

    def stop(self) -> tuple[AgentEvent, ...]:
        """Shut down the agent, and return the agent events."""
        if self._agent is not None:
            self._dismiss(self._agent.stop())
        return self._told()

    def kill(self) -> None:
        """End the agent at once; the thread of the lease sees it as a death."""
        agent = self._agent
        if agent is not None:
            agent.end()

    def state(self) -> SlotState:
        """Return what the slot is doing; may be called by any thread."""
        agent, run = self._agent, self._run
        nobody = SlotState(Place(self._node, "", HOST), "starting", 0.0, None)
        if agent is None:
            return nobody
        try:
            activity = agent.activity()
        except ValueError:  # the agent has ended and its page is closed
            return nobody
        at_hand = None
        if run is not None and activity.lease_id == run.order:
            at_hand = run.index_at(activity.position)
        place = Place(self._node, agent.spec.name, HOST, agent.pid)
        return SlotState(place, activity.phase.name.lower(), activity.age_s(), at_hand)

    # ---- the agent ----

    def _ready_agent(self, assignment: AgentAssignment | None) -> Supervisor | None:
        """Return the agent, or a new one for the assignment; None without agent or assignment."""
        agent = self._agent
        if agent is not None:
            if not agent.alive():
                self._dismiss(self._exited(agent, "while it was idle"))
            elif assignment is None or assignment.process == agent.spec.name:
                return agent
            else:
                self._dismiss(agent.stop())
        return None if assignment is None else self._started(assignment)

    def _started(self, assignment: AgentAssignment) -> Supervisor | None:
        """Return a new agent; None when `init` failed."""
        begun = time.monotonic()
        self._agent = agent = self._employ(self._node, assignment)
        name = agent.spec.name
        self._served = AgentStarted(name, agent.pid)
        self._events.append(self._served)
        failure = agent.make_ready()
        elapsed = time.monotonic() - begun
        if failure is None:
            self._events.append(AgentReady(name, elapsed))
            return agent
        self._events.append(InitFailed(name, failure, elapsed))
        returncode = agent.end(grace_s=EXIT_GRACE_S)
        reason = failure.message or failure.kind
        self._dismiss(AgentExited(name, returncode, reason, expected=False))
        return None

    def _exited(self, agent: Supervisor, when: str) -> AgentExited:
        returncode = agent.end(grace_s=EXIT_GRACE_S)
        reason = agent.death(returncode, when).message
        return AgentExited(agent.spec.name, returncode, reason, expected=False)

    def _dismiss(self, exited: AgentExited) -> None:
        if self._agent is None:
            return
        self._events.append(exited)
        self._agent.close()
        spec = self._agent.spec
        for log in () if spec.far else (spec.stdout, spec.stderr):
            cut(log)
        shutil.rmtree(spec.working_dir, ignore_errors=True)
        self._agent = None

    def _told(self) -> tuple[AgentEvent, ...]:
        events = tuple(self._events)
        self._events.clear()
        return events

    # ---- the lease ----

    def _work_on(self, lease: Lease) -> LeaseReturned:
        if lease.continues is None:
            self._node = lease.node
            agent = self._ready_agent(lease.assignment)
            self._orders += 1
            self._run = LeaseRun(self._orders, lease.work, lease.return_after_s)
            if agent is None:
                vacant = lease.assignment is None
                return self._returned(lease, untouched=self._run.left, vacant=vacant)
            agent.send(RunLease(self._orders, lease.work, lease.prefetch))
            if lease.return_when_ready:
                return self._returned(lease, running=self._run.left)
        elif lease.work and self._run is not None and self._agent is not None:
            self._run.extend(lease.work)
            self._run.return_after_s = lease.return_after_s
            self._agent.send(ExtendLease(self._run.order, lease.work))
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
        blame = blame_death(run, agent.page.look(), failure)
        reason = failure.message
        if agent.is_orphan():
            blame = Blame(None, None, run.left)
            reason = "the process that it was forked from is gone, and took it along"
        self._dismiss(AgentExited(agent.spec.name, returncode, reason, expected=False))
        return self._blamed(lease, blame)

    def _timed_out(
        self, lease: Lease, agent: Supervisor, run: LeaseRun, overdue: MissedDeadline
    ) -> LeaseReturned:
        returncode = agent.end(dump=True)
        self._receive(agent.drain(), run, below=overdue.activity.position)
        blame = blame_timeout(run, overdue.activity, overdue.failure)
        reason = overdue.failure.message
        self._dismiss(AgentExited(agent.spec.name, returncode, reason, expected=False))
        return self._blamed(lease, blame)

    def _blamed(self, lease: Lease, blame: Blame) -> LeaseReturned:
        more = () if blame.outcome is None else (blame.outcome,)
        return self._returned(lease, untouched=blame.untouched, death=blame.death, more=more)

    def _returned(
        self,
        lease: Lease,
        *,
        running: tuple[int, ...] = (),
        untouched: tuple[int, ...] = (),
        vacant: bool = False,
        death: Death | None = None,
        more: tuple[Outcome, ...] = (),
    ) -> LeaseReturned:
        run = self._run
        results = () if run is None else run.share()
        if more:
            results = (*results, Results(ColumnBatch(more)))
        if not running:
            self._run = None
        return LeaseReturned(
            lease_id=lease.id,
            process=self._served.process,
            pid=self._served.pid,
            host=HOST,
            results=results,
            running=running,
            untouched=untouched,
            recalled=run is not None and run.recalled,
            vacant=vacant,
            death=death,
            agent_events=self._told(),
        )
