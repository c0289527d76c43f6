"""One slot of a worker: at most one agent at a time, and the agent's lease."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from daskprs._agent.node.gpu_use import gpu_use_of, holds_device
from daskprs._agent.protocol.messages import ExtendLease, Noted, Outcomes, RunLease
from daskprs._agent.protocol.shared_page import Phase
from daskprs._agent.supervision.calls_run import CallsRun
from daskprs._agent.supervision.lease_run import Blame, LeaseRun, blame_death, blame_timeout
from daskprs._agent.supervision.supervisor import EXIT_GRACE_S, LOOK_EVERY_S
from daskprs._core.events import Place, SlotState
from daskprs._core.lease import (
    AgentAssignment,
    AgentEvent,
    AgentExited,
    AgentNoted,
    AgentReady,
    AgentStarted,
    Death,
    InitFailed,
    Lease,
    LeaseReturned,
)
from daskprs._core.outcomes import Status
from daskprs._core.usage import ProcessUsage
from daskprs._system.linux import descendants
from daskprs._system.log_cap import cut
from daskprs._system.process_tree import pss_bytes
from daskprs._system.remove_tree import remove_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from daskprs._agent.protocol.shared_page import Activity
    from daskprs._agent.supervision.supervisor import Supervisor
    from daskprs._core.outcomes import Failure, Results
    from daskprs._core.spending import Amounts

HOST = socket.gethostname()


def has_run(results: Iterable[Results]) -> bool:
    """Return whether `run` has succeeded in any of these attempts: before, it may load nothing."""
    return any(
        status is Status.RUN_DONE and not empty
        for one in results
        for status, empty in one.outcomes.columns("status", "empty")
    )


def counted_before(events: Iterable[AgentEvent]) -> list[tuple[str, Amounts]]:
    """Return what the script has counted in processes that have ended, by process."""
    ended = [one for one in [*events] if isinstance(one, AgentExited)]  # others may add to them
    return [(one.process, one.counted) for one in ended if one.counted]


class Slot:
    """Runs leases one after the other, each in the slot's agent or in a new one.

    All methods but `state`, `recall`, `kill` and `watch` are called by the thread of the lease.
    """

    function = "run"
    """The function that the agent gives its mini-batches to."""

    def __init__(
        self, employ: Callable[[int, AgentAssignment], Supervisor], calls: int | None = None
    ) -> None:
        self._calls = calls
        """Number of calls of `run` at a time of an agent; None: it makes one after the other."""
        self._employ = employ
        """Starts an agent with an assignment on the node of a number."""
        self._agent: Supervisor | None = None
        self._node = 0
        self._run: LeaseRun | None = None
        self._lease: Lease | None = None
        """The lease that runs, or the last one."""
        self._ended_between: LeaseReturned | None = None
        """What the next lease returns, if the agent was ended between two of them."""
        self._orders = 0
        self._busy = threading.Lock()
        """Held by the running lease; a cancelled lease may still hold it when the next comes."""
        self._looking = threading.Lock()
        """Held while the agent is judged between two leases."""
        self._is_stopped = False
        self._turning = threading.Lock()
        """Held while a lease takes its turn, and while the agent of one is killed."""
        self._lease_id = 0
        self._events: list[AgentEvent] = []
        self._served = AgentStarted("", 0)
        """The agent that runs or ran the lease; it may have ended since."""

    def run(self, lease: Lease) -> LeaseReturned:
        """Work on a lease until it is done, or until results or work must be handed back."""
        with self._busy:
            with self._turning:
                self._lease_id = lease.id
            self._lease = lease
            if lease.continues is None:
                return self._begin(lease)
            before, self._ended_between = self._ended_between, None
            if before is not None:
                untouched = (*before.untouched, *lease.work.column("mini_batch.index"))
                return replace(before, lease_id=lease.id, untouched=untouched)
            if lease.work and self._run is not None and self._agent is not None:
                self._run.extend(lease.work)
                self._run.return_after_s = lease.return_after_s
                if work := self._run.given(lease.work):
                    self._agent.send(ExtendLease(self._run.order, work))
            return self._watch(lease)

    @property
    def is_unwatched(self) -> bool:
        """Whether the agent is at work, and no lease looks at it."""
        return self._run is not None and not self._busy.locked()

    def watch(self) -> None:
        """Judge the agent once between two leases, in any thread; the next one returns the end.

        A driver may be stopped for hours. Meanwhile its agents go on: one that hangs would keep
        permits that other jobs wait for, and one that leaks would fill the memory of its node.
        """
        if not self._busy.acquire(blocking=False):
            return
        try:
            with self._looking:
                lease, agent, run = self._lease, self._agent, self._run
                if self._is_stopped or lease is None or agent is None or run is None:
                    return
                self._receive(agent, agent.receive(0.0), run)
                # All else can wait for the next lease.
                if not (run.finished or run.halted is not None or agent.gone):
                    self._ended_between = self._judged(lease, agent, run)
        finally:
            self._busy.release()

    def stop(self) -> tuple[AgentEvent, ...]:
        """Shut down the agent, and return the agent events."""
        # An agent may have work left that others have done. Who looks at it would take its last
        # messages, and end it for its `shutdown`.
        with self._looking:
            self._is_stopped = True
        if self._agent is not None:
            self._dismiss(self._agent.stop())
        return self._taken_events()

    def kill(self, lease_id: int | None = None) -> None:
        """End the agent at once; the thread of the lease sees it as a death.

        With `lease_id`, only if the slot works on that lease: it may have ended meanwhile, and the
        agent may work on the next one.
        """
        with self._turning:
            agent = self._agent
            if agent is not None and lease_id in (None, self._lease_id):
                agent.end()

    def let_go(self) -> None:
        """Close what is held of an agent that was killed at the end of the job.

        A lease or a `stop` that still runs does so itself. An error of the job that the caller
        keeps refers to the slot, and would hold the descriptors for as long.
        """
        if self._busy.acquire(blocking=False):
            try:
                with self._looking:
                    if self._agent is not None and not self._is_stopped:
                        self._agent.close()
                        self._agent = None
            finally:
                self._busy.release()

    def recall(self, lease_id: int) -> None:
        """Let a lease hand back what its agent has not begun, at its next look."""
        run = self._run
        if run is not None and lease_id == self._lease_id:
            run.is_wanted = True

    def state(self) -> SlotState:
        """Return the state of the slot; may be called by any thread."""
        agent, run = self._agent, self._run
        if agent is not None:
            with suppress(ValueError):  # the agent has ended and its page is closed
                activity, printed = agent.page.look(), agent.page.printed()
                place = Place(self._node, agent.spec.name, HOST, agent.pid)
                at_hand = None if run is None else run.index_of(activity)
                size = None if run is None else run.size_of(activity)
                phase = Phase.RUNNING if activity.phase is Phase.CANCELING else activity.phase
                name, age_s = phase.name.lower(), activity.age_s()
                return SlotState(place, name, age_s, at_hand, printed, size, self.counted())
        return SlotState(Place(self._node, "", HOST), "starting", 0.0, None)

    def counted(self) -> tuple[tuple[str, Amounts], ...]:
        """Return what the script has counted in the processes of the slot; any thread may ask."""
        # The end of a process is told when the next one is up, or has failed.
        by_process = counted_before(self._events)
        agent = self._agent
        if agent is not None:
            with suppress(ValueError):  # the agent has ended and its page is closed
                if counted := agent.page.counted():
                    by_process.append((agent.spec.name, counted))
        return tuple(by_process)

    @property
    def is_staffed(self) -> bool:
        """Whether the slot has an agent."""
        return self._agent is not None

    def close(self) -> None:
        """End what works for the slot beside its agent, without waiting for it."""

    def usages(self, of_devices: Mapping[int, int]) -> list[ProcessUsage]:
        """Return the usage of all processes of the slot; may be called by any thread.

        `of_devices` has the memory on devices by process id.
        """
        agent = self._agent
        if agent is None:
            return []
        try:
            sample = agent.sample()
        except ValueError:  # the agent has ended and its page is closed
            return []
        pids = (agent.pid, *descendants(agent.pid))
        on_devices = [of_devices[pid] for pid in pids if pid in of_devices]
        held_bytes = sum(on_devices) if on_devices else None
        has_gpu = any(map(holds_device, pids))
        name, pid = agent.spec.name, agent.pid
        return [ProcessUsage(name, pid, sample, pss_bytes(pids), held_bytes, has_gpu)]

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
        name = agent.spec.name
        self._served = AgentStarted(name, agent.pid, agent.process.apart)
        self._events.append(self._served)
        failure = agent.make_ready()
        elapsed = time.monotonic() - begun
        if failure is None:
            self._events.append(AgentReady(name, elapsed, *agent.ready[1:]))
            return agent
        self._events.append(InitFailed(name, failure, elapsed, agent.was_idle))
        self._lose(agent, agent.end(grace_s=EXIT_GRACE_S), failure.message or failure.kind)
        return None

    def _lose(self, agent: Supervisor, returncode: int, reason: str) -> None:
        """Dismiss an agent that did not end on an order of its own."""
        samples = agent.usage.samples
        exited = AgentExited(agent.spec.name, returncode, reason, expected=False, usage=samples)
        self._dismiss(exited._replace(counted=agent.page.counted()))

    def _dismiss(self, exited: AgentExited) -> None:
        if self._agent is None:
            return
        self._events.append(exited)
        self._agent.close()
        spec = self._agent.spec
        # The driver cuts its copies of the logs of a far node: here, the offsets have to stay until
        # it has fetched them.
        for log in () if spec.far else (spec.stdout, spec.stderr):
            cut(log)
        with suppress(OSError):
            remove_tree(Path(spec.working_dir))
        self._agent = None

    def _taken_events(self) -> tuple[AgentEvent, ...]:
        before, self._ended_between = self._ended_between, None
        events = (*(() if before is None else before.agent_events), *self._events)
        self._events.clear()
        return events

    # ---- the lease ----

    def _begin(self, lease: Lease) -> LeaseReturned:
        self._node = lease.node
        agent = self._ready_agent(lease.assignment)
        if agent is None:
            self._run, untouched = None, tuple(lease.work.column("mini_batch.index"))
            return self._returned(lease, untouched=untouched, vacant=lease.assignment is None)
        self._orders += 1
        self._run = agent.run = run = self._run_of(lease)
        work, most_in_a_row = run.given(lease.work), lease.most_in_a_row
        agent.send(RunLease(self._orders, work, lease.prefetch, most_in_a_row))
        # Some start has failed before. The job ends at once if all starts fail alike, so the driver
        # has to hear which agents are up before their mini-batches are done.
        if lease.return_when_ready:
            return self._returned(lease, running=run.left)
        return self._watch(lease)

    def _run_of(self, lease: Lease) -> LeaseRun:
        """Return the record of a lease that begins."""
        if self._calls is not None:
            return CallsRun(self._orders, lease.work, lease.return_after_s, self._calls)
        return LeaseRun(self._orders, lease.work, lease.return_after_s)

    def _watch(self, lease: Lease) -> LeaseReturned:
        agent, run = self._agent, self._run
        if agent is None or run is None:
            return self._returned(lease)
        agent.function = self.function
        while True:
            if not run.turn(agent.send):
                agent.excuse()
            # A look between two leases may have read the last message of the order.
            is_over = run.finished or run.halted is not None
            due_in_s = 0.0 if is_over else run.due_in_s()
            wait_s = LOOK_EVERY_S if due_in_s is None else min(LOOK_EVERY_S, due_in_s)
            self._receive(agent, agent.receive(wait_s), run)
            if run.finished or run.halted is not None:
                return self._ended(lease, agent, run)
            if agent.gone:
                return self._died(lease, agent, run)
            if (returned := self._judged(lease, agent, run)) is not None:
                return returned
            if run.due_in_s() == 0.0:
                is_stuck = run.stuck
                untouched = run.take_back(agent.page, agent.send) if is_stuck else ()
                if untouched or not is_stuck:
                    return self._returned(lease, running=run.left, untouched=untouched)

    def _judged(self, lease: Lease, agent: Supervisor, run: LeaseRun) -> LeaseReturned | None:
        """End an agent that has exceeded a limit; return what the lease returns of it then."""
        overdue = agent.overdue()
        if overdue is not None:
            return self._timed_out(lease, agent, run, overdue)
        too_big = agent.too_big()
        return None if too_big is None else self._died(lease, agent, run, too_big)

    def _receive(
        self, agent: Supervisor, messages: list[object], run: LeaseRun, but: int | None = None
    ) -> None:
        spool = agent.spec.spool
        for message in messages:
            if isinstance(message, Noted):
                self._events.append(AgentNoted(agent.spec.name, message.text))
            # Outcomes of an order that was taken back before it began are stale.
            if isinstance(message, Outcomes) and message.lease_id == run.order:
                if message.results.spool not in ("", spool and spool.name):
                    return agent.distrust("rows in the spool of another agent")
                if not run.expects(message):
                    return agent.distrust("outcomes of mini-batches that are not its own")
                run.receive(message, but)
        return None

    def _ended(self, lease: Lease, agent: Supervisor, run: LeaseRun) -> LeaseReturned:
        """Hand back a finished order, or what a halted agent has not begun.

        After a fatal error the agent is ended at once: `shutdown` could wait for its device.
        """
        run.finish_stages()
        if run.halted:
            self._lose(agent, agent.end(), f"it can use its device no more: {run.halted}")
        return self._returned(lease, untouched=run.left)

    def _died(
        self, lease: Lease, agent: Supervisor, run: LeaseRun, why: Failure | None = None
    ) -> LeaseReturned:
        returncode = agent.end(grace_s=0.0 if why else EXIT_GRACE_S)
        # The outcomes that it sent before its end count: these mini-batches are done.
        self._receive(agent, agent.drain(), run)
        is_run = self.function == "run"
        when = "while it was at work" if is_run else f"during {self.function}()"
        failure = why or agent.death(returncode, when)
        last = agent.page.look()
        peak_bytes = agent.peak_bytes(last.age_s())
        blame = blame_death(run, last, failure, agent.printed(), peak_bytes)
        reason = failure.message
        # The end of the zygote takes all its agents along, so no mini-batch is to blame.
        if agent.process.orphaned:
            blame = Blame((), None, run.left)
            reason = "the process that it was forked from ended, and all its forks ended with it"
        self._lose(agent, returncode, reason)
        return self._blamed(lease, run, blame)

    def _timed_out(
        self, lease: Lease, agent: Supervisor, run: LeaseRun, overdue: Activity
    ) -> LeaseReturned:
        late = agent.late_beside(overdue)
        returncode = agent.end(dump=True)
        # The timeout stands once it is judged: an outcome that the agent has sent since does not
        # count.
        self._receive(agent, agent.drain(), run, but=overdue.position)
        peak_bytes = agent.peak_bytes(overdue.age_s())
        failure = agent.timeout(overdue)
        blame = blame_timeout(run, overdue, failure, agent.printed(), peak_bytes, late)
        self._lose(agent, returncode, failure.message)
        return self._blamed(lease, run, blame)

    def _blamed(self, lease: Lease, run: LeaseRun, blame: Blame) -> LeaseReturned:
        run.finish_stages()
        if blame.outcomes:
            run.charge(blame.outcomes)
        left = {*run.left}  # without those whose last stage has ended meanwhile
        untouched = tuple(index for index in blame.untouched if index in left)
        return self._returned(lease, untouched=untouched, death=blame.death)

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
        if not running:  # nothing of the lease runs any more
            self._run = None
            if run is not None:
                run.close()
        results = () if run is None else run.share()
        # Only after a success: many scripts load their libraries in the first call of `run`.
        finds_gpu_use = lease.finds_gpu_use and self._agent is not None and has_run(results)
        return LeaseReturned(
            lease_id=lease.id,
            process=self._served.process,
            pid=self._served.pid,
            host=HOST,
            counted=self.counted(),
            results=results,
            gpu_use=gpu_use_of(self._served.pid) if finds_gpu_use else None,
            running=running,
            untouched=untouched,
            recalled=run is not None and run.recalled,
            halted=run is not None and run.halted is not None,
            is_done=run is not None and run.is_done,
            vacant=vacant,
            death=death,
            agent_events=self._taken_events(),
            stage_events=self._taken_stage_events(),
        )

    def _taken_stage_events(self) -> tuple[AgentEvent, ...]:
        """Return what stage processes have reported since the last lease; this slot has none."""
        return ()
