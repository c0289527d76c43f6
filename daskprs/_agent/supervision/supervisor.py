"""One agent process and its supervisor: its start, its messages, its deadlines, its end."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from daskprs._agent.foreign.raised import EXIT_BROKEN, FAILED_IN
from daskprs._agent.protocol.messages import (
    PROTOCOL,
    THREADS_LEFT,
    InitDone,
    InitRaised,
    Start,
    Started,
    Stop,
    Stopped,
)
from daskprs._agent.protocol.shared_page import Activity, Phase
from daskprs._agent.supervision.init_watch import InitWatch
from daskprs._agent.supervision.stacks import FATAL, stacks_in
from daskprs._agent.supervision.usage_ring import UsageRing
from daskprs._core.lease import AgentExited
from daskprs._core.limits import NEVER_S
from daskprs._core.outcomes import (
    PRINTED_SOMEWHERE,
    UNKNOWN,
    Failure,
    Printed,
    meaning_of,
    signal_of,
)
from daskprs._core.tracebacks import deepest_line
from daskprs._system.linux import descendants
from daskprs._system.log_cap import punch
from daskprs._system.memory import megabytes
from daskprs._system.process_tree import MemoryLooks
from daskprs._system.standard_streams import without_escapes
from daskprs.errors import OURS, AgentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from daskprs._agent.protocol.messages import JobSpec, ProcessSpec
    from daskprs._agent.supervision.agent_process import AgentProcess
    from daskprs._agent.supervision.lease_run import LeaseRun
    from daskprs._core.calls import Calls
    from daskprs._core.limits import Limits
    from daskprs._core.usage import UsageSample
    from daskprs._system.masks import Mask

START_TIMEOUT_S = 120.0
"""Seconds in which an interpreter with pandas must start, even on a busy machine."""
EXIT_GRACE_S = 1.0
"""Seconds in which a process that has closed its socket may end by itself."""
INIT_SIGN = ".init"
"""The file beside the working directories of a node's agents by which its `init`s show work."""
IDLE_INIT = "an init() that did nothing (under 1 % of a core, nothing read, written or printed)"
LOOK_EVERY_S = 1.0
"""Seconds between checks of the page and the memory when nothing else happens."""
LESS = (
    "Let the script keep less, use smaller mini-batches, or raise its limit, such as ulimit -v or "
    "the memory of the container."
)
FEWER = (
    "Let the script keep less, use smaller mini-batches (mini_batch_size) or fewer processes on "
    "each node (process_count_per_node), or give the nodes more memory."
)
KEEP_LESS = (
    "Use smaller mini-batches, raise the limit, or let the script keep less from one mini-batch to "
    "the next."
)
FORGED = "its socket to daskprs had bytes that an agent does not send"
NOT_YOURS = (
    "The script, or a process that it has started, writes to descriptors that it has not opened. "
    "Let it close or write only to its own."
)
CLOSED = (
    "its socket to daskprs was closed. The script, or a library that it uses, closes descriptors "
    "that it has not opened. Let it close only its own."
)
SPOILT = (
    "The script, or a library that it uses, may have closed descriptors that it had not opened, or "
    "replaced functions or modules of Python. Let it leave them as they are. The traceback is in "
    "the stderr log of the process."
)
GATHER_S = 0.5
"""Seconds for which a call that has exceeded its timeout waits for others that soon will. So one
kill ends all calls of an endpoint that does not answer."""
CANCELS_WITHIN_S = 5.0
"""Seconds in which an agent cancels a coroutine after its timeout; one that cannot is ended."""
RAISED_CHARS = 200
"""Characters of the error of an agent in which our own code has failed."""
TAIL_CHARS = 2000
"""Characters from the end of the stderr log that a message about a death quotes."""
CRASHES = {
    -number
    for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
}
"""Return codes of processes that Python has left a dump of."""


OF_CALLS = (Phase.RUNNING, Phase.CANCELING)
"""The phases in which each of several calls has its own timeout."""


class _Deadline(NamedTuple):
    seconds: float
    what: str
    option: str
    instead: str = ""
    grace_s: float = 0.0
    """Seconds in which the agent may keep to it by itself."""


class AgentStarter(Protocol):
    """Starts agents: a zygote, or the starter of an agent in the caller's process."""

    @property
    def alive(self) -> bool:
        """Whether it can start agents."""

    def start_agent(self, spec: ProcessSpec, mask: Mask | None = None) -> AgentProcess:
        """Start an agent, whose logs are masked, and return its handle."""

    def close(self) -> None:
        """End all agents that are left."""


class Supervisor:
    """One agent process, from its fork to its end."""

    def __init__(self, starter: AgentStarter, job: JobSpec, process: ProcessSpec) -> None:
        self.spec = process = process._replace(masked=bool(job.mask))
        self.gone = False
        """Whether the agent has closed its socket or ended."""
        self._limits = job.limits
        self._deadlines = _deadlines(job.limits, job.calls)
        self._script = job.script
        self.was_idle = False
        """Whether the agent was ended since its `init` did nothing."""
        self._dump = ""
        """The stacks that the agent has dumped at its end, on request or in a crash."""
        self._forged = ""
        """The fault of a message of the agent; empty while all messages were valid."""
        self._asked_s = self._looked_s = time.monotonic()
        self._memory_looks = MemoryLooks()
        self.process = starter.start_agent(process, job.mask)
        self.page = self.process.page
        if job.calls is not None:
            self.page.calls = job.calls.at_once
        self.pid = self.process.pid
        self.ready = InitDone(0.0)
        """What the agent has said of its import and `init`."""
        self.usage = UsageRing(self.pid, self.page)
        self.run: LeaseRun | None = None
        """The record of its last order."""
        self.at_close: Callable[[], None] = lambda: None
        """Called while the page can be read for the last time."""
        self.function = "run"
        """The function that a mini-batch is given to: another stage has its own."""
        self.also_wakes: tuple[int, ...] = ()
        """Descriptors that end the wait for a message when they are readable."""
        self._init_watch: InitWatch | None = None
        self.send(Start(job, process))

    # ---- start ----

    def make_ready(self) -> Failure | None:
        """Wait until `init` has returned; return the failure if it does not."""
        while True:
            for message in self.receive():
                match message:
                    case InitDone():
                        self.ready = message
                        return None
                    case InitRaised(failure=failure):
                        return failure
                    case Started(protocol=protocol) if protocol != PROTOCOL:
                        self.end()
                        raise AgentError(_other_version(protocol))
            if self.gone:
                return self.death(self.end(grace_s=EXIT_GRACE_S), "during init()")
            overdue = self.overdue()
            if overdue is None and self._is_idle():
                self.was_idle, overdue = True, self.page.look()
            if overdue is not None:
                self.end(dump=True)
                return self.timeout(overdue)
            if (too_big := self.too_big()) is not None:
                self.end()
                return too_big

    def _is_idle(self) -> bool:
        """Say whether `init` has done nothing for its timeout."""
        if self._limits.init_idle_timeout_s >= self._limits.init_timeout_s:
            return False
        if self.page.look().phase is not Phase.INIT:
            return False
        if self._init_watch is None:
            logs, sign = (self.spec.stdout, self.spec.stderr), Path(self.spec.working_dir).parent
            timeout_s = self._limits.init_idle_timeout_s
            self._init_watch = InitWatch(self.pid, logs, sign / INIT_SIGN, timeout_s)
        return self._init_watch.is_idle()

    # ---- messages ----

    def send(self, message: Any) -> None:
        """Send a message; an agent that does not take it is `gone`."""
        self._asked_s = time.monotonic()
        self.process.channel.send(message)
        self.gone = self.process.channel.closed

    def receive(self, within_s: float = LOOK_EVERY_S) -> list[Any]:
        """Return the received messages; wait for the first one."""
        if self.gone:
            return []
        self._look()
        messages = self.drain(min(within_s, self._seconds_left(self.page.look())))
        self.gone = self.process.channel.closed or self.process.returncode(0.0) is not None
        return messages

    def _look(self) -> None:
        """About once a second, take a sample, and keep the logs from filling the disk."""
        now = time.monotonic()
        if now - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now
            self.sample()
            # A script that prints without end would fill the disk of the job folder.
            punch(self.spec.stdout)
            punch(self.spec.stderr)

    def sample(self) -> UsageSample:
        """Return the present usage of the agent and its sub-processes."""
        activity = self.page.look()
        index = None if self.run is None else self.run.index_of(activity)
        return self.usage.sample(activity, index)

    def drain(self, within_s: float = 0.0) -> list[Any]:
        """Return the messages that are there, also those of a dead agent; wait for the first."""
        try:
            fds = self.process.sentinel.fileno(), *self.also_wakes
            return self.process.channel.receive(within_s, *fds)
        except Exception as error:  # noqa: BLE001 - bytes of a script instead of a message
            self.distrust(str(error) or type(error).__name__)
            return []

    def distrust(self, why: str) -> None:
        """Hear no more of an agent that has sent what no agent sends: it is `gone`."""
        self._forged = self._forged or why
        self.process.channel.close()
        self.gone = True

    def alive(self) -> bool:
        """Say whether the process lives and its socket is open."""
        return not self.gone and self.process.returncode(0.0) is None

    # ---- deadlines ----

    def overdue(self) -> Activity | None:
        """Return the activity with which the agent has exceeded a timeout, or None."""
        activity = self.page.look()
        return None if self._seconds_left(activity) > 0 else activity

    def late_beside(self, judged: Activity) -> list[Activity]:
        """Return the other calls that have exceeded their timeouts, when one is ended for that."""
        late = []
        for call in self.page.beside(judged):
            seconds = self._deadline(call).seconds
            if call.phase is judged.phase and call.phase in OF_CALLS and call.age_s() > seconds:
                late.append(call)
        return late

    def timeout(self, activity: Activity) -> Failure:
        """Return the failure of an agent that was ended for an activity that took too long."""
        deadline = self._deadline(activity)
        if self.was_idle:
            seconds = self._limits.init_idle_timeout_s
            deadline = _Deadline(seconds, IDLE_INIT, "init_idle_timeout", ", or let it print")
        stacks = stacks_in(self._dump, self._script)
        message = (
            f"{deadline.what} exceeded {deadline.seconds:g} s on {self.spec.name}, which was "
            f"killed after {activity.age_s():.1f} s"
        )
        is_own = stacks.rpartition('\n  File "')[2].startswith(OURS)
        if activity.phase is Phase.RUNNING and is_own:  # whatever it was at in that moment
            message += " while daskprs took what it yields or returns"
        elif place := deepest_line(stacks):
            message += f" in {place}"
        if self._dump:
            message += ". The stacks of all threads are in its stderr log."
        else:
            message += ". It did not react, so that its stacks are unknown."
        if deadline.option:
            message += f" Raise {deadline.option} if it needs longer{deadline.instead}."
        text = f"{stacks}TimeoutError: {message}\n" if stacks else ""
        return Failure("TimeoutError", message, text)

    def too_big(self) -> Failure | None:
        """Return a failure if the agent and its descendants exceed the memory limit, else None."""
        limit = self._limits.agent_memory_bytes
        if limit is None:
            return None
        held = self._memory_looks.look(self.pid, limit)
        if held is None or held <= limit:
            return None
        count = len(descendants(self.pid))
        beside = f" with its {count} sub-process{'es' * (count > 1)}" if count > 0 else ""
        in_init = self.page.look().phase is Phase.INIT
        advice = "Raise the limit, or let init() load less." if in_init else KEEP_LESS
        message = (
            f"{self.spec.name} was killed: it held {held >> 20} MiB{beside}, and "
            f"agent_memory_limit is {limit >> 20} MiB. {advice}"
        )
        return Failure("MemoryError", message)

    def excuse(self) -> None:
        """Begin the deadline of an idle agent anew: there is nothing that it could do."""
        self._asked_s = time.monotonic()

    def _seconds_left(self, activity: Activity) -> float:
        """Return the seconds until the deadline of a phase; our last message starts it anew."""
        age_s = activity.age_s()
        if activity.phase in (Phase.STARTING, Phase.IDLE):
            # An idle agent is late only with an order: before it, there was nothing to do.
            age_s = min(age_s, time.monotonic() - self._asked_s)
        deadline = self._deadline(activity)
        return deadline.seconds + deadline.grace_s - age_s

    def _deadline(self, activity: Activity) -> _Deadline:
        deadline = self._deadlines[activity.phase]
        if activity.phase is Phase.RUNNING and self.function != "run":
            return deadline._replace(what=f"{self.function}()")
        own_s = None if self.run is None else self.run.timeout_of(activity)
        if activity.phase is Phase.RUNNING and own_s is not None:
            seconds, what = min(own_s, deadline.seconds), "run() for a piece of a mini-batch"
            return _Deadline(seconds, what, "", grace_s=deadline.grace_s)
        return deadline

    # ---- end ----

    def stop(self) -> AgentExited:
        """Shut down the agent: it calls `shutdown` and ends."""
        until = time.monotonic() + self._limits.shutdown_timeout_s
        self.also_wakes = ()  # they would stay readable: this loop does not read them
        self.send(Stop())
        warning = None
        while not self.gone and time.monotonic() < until:
            for message in self.receive(until - time.monotonic()):
                if isinstance(message, Stopped):
                    warning = message.failure
        late = self.process.returncode(max(0.0, until - time.monotonic())) is None
        returncode = self.end(dump=late)
        if late:
            left = warning
            warning = self.timeout(self.page.look()._replace(phase=Phase.SHUTDOWN))
            if left is not None and left.kind == THREADS_LEFT:
                message = f"shutdown_timeout={self._limits.shutdown_timeout_s:g} s has passed, and "
                warning = left._replace(message=f"{message}{left.message}")
        elif returncode != 0 and warning is None:
            warning = self.death(returncode, "during shutdown()")
        counted = self.page.counted()
        exited = AgentExited(self.spec.name, returncode, "stopped", returncode == 0, warning)
        return exited._replace(counted=counted)

    def printed(self) -> Printed | None:
        """Return the output of the agent since its last attempt that ended by itself.

        The stacks that it dumped at its end do not count.
        """
        begins, ends = self.page.printed(), []
        if UNKNOWN in begins:
            return PRINTED_SOMEWHERE
        logs = (self.spec.stdout, 0), (self.spec.stderr, len(self._dump.encode()))
        for first, (log, dumped) in zip(begins, logs, strict=True):
            try:
                ends.append(max(first, Path(log).stat().st_size - dumped))
            except OSError:
                ends.append(first)
        same = tuple(ends) == begins
        return None if same else Printed(*zip(begins, ends, strict=True))

    def end(self, *, dump: bool = False, grace_s: float = 0.0) -> int:
        """Kill the agent with all its descendants, and return its return code.

        `grace_s` is for an agent that is ending by itself: its own return code explains the end,
        that of a kill would not.
        """
        self.gone = True
        if dump:
            self._dump = self.process.dump_stacks()
        if grace_s:
            self.process.returncode(grace_s)
        return self.process.kill()

    def close(self) -> None:
        """Close the descriptors and the page of the agent, which has ended."""
        self.at_close()
        self.process.close()

    def death(self, returncode: int, when: str) -> Failure:
        """Return the failure for a dead agent, with the end of its stderr log."""
        if self._forged:
            message = f"{self.spec.name} was ended {when}: {FORGED} ({self._forged}). {NOT_YOURS}"
            return Failure("PROCESS_DIED", message)
        if self.page.lacked_memory():
            return Failure("MemoryError", f"{self.spec.name} ran out of memory {when}. {LESS}")
        _, found, error = self.process.stderr_from().rpartition(FAILED_IN)
        if self.page.broke_down() or (found and returncode == EXIT_BROKEN):
            raised = f" ({error[:RAISED_CHARS].partition(chr(10))[0]})" if found else ""
            message = f"{self.spec.name} ended {when}: daskprs failed in it{raised}. {SPOILT}"
            # Something may have been spoilt by an earlier mini-batch.
            return Failure("PROCESS_DIED", message, fatal=True)
        if self.process.killed and returncode == -signal.SIGKILL:
            return Failure("PROCESS_DIED", f"{self.spec.name} was ended {when}: {CLOSED}")
        exits = f"{self.spec.name} exits with returncode {returncode}{signal_of(returncode)}"
        log, self._dump = self.process.stderr_from(), ""
        if returncode in CRASHES and FATAL in log:  # else it is the dump of a sub-process
            log, crash, dump = log.rpartition(FATAL)
            self._dump = crash + dump
        stacks = stacks_in(self._dump, self._script)
        if returncode == -signal.SIGKILL:
            failure = self._killed(f"{exits} {when}")
        else:
            place = f" in {line}" if (line := deepest_line(stacks)) else ""
            failure = Failure("PROCESS_DIED", f"{exits} {when}: {meaning_of(returncode)}{place}.")
        tail = without_escapes(log[-TAIL_CHARS:]).strip()
        message = f"{failure.message} Its stderr ends with:\n{tail}" if tail else failure.message
        text = f"{stacks}{failure.kind}: {message}\n" if stacks else ""
        return failure._replace(message=message, traceback=text)

    def _killed(self, ended: str) -> Failure:
        """Return the failure for an agent that got a SIGKILL which did not come from here."""
        told = f"{self._memory_at_the_end()} {self._last_minutes()}".rstrip()
        match self.usage.was_short_of_memory():
            case True:
                why = "the kernel killed it for lack of memory"
                return Failure("MemoryError", f"{ended}: {why}. {told} {FEWER}")
            case False:
                why = "it was killed from outside, and not by the kernel for lack of memory"
            case None:
                why = meaning_of(-signal.SIGKILL)
        return Failure("PROCESS_DIED", f"{ended}: {why}. {told}")

    def peak_bytes(self, seconds: float) -> int:
        """Return the highest memory of an ended agent in its last mini-batch, which took this.

        What the kernel says of a process counts its ended sub-processes, those of earlier
        mini-batches, too. Where such a one may be the highest, only samples are left.
        """
        exact, sampled = self.process.peak_bytes, self.usage.highest_bytes(seconds)
        return max(exact, sampled) if exact > self.page.ended_before_bytes() else sampled

    def _memory_at_the_end(self) -> str:
        """Return a sentence about the memory that the agent held, and about what was left."""
        peak_bytes = self.peak_bytes(self.page.look().age_s())
        held = f"It held up to {megabytes(peak_bytes)}"
        if not peak_bytes:
            held = "What it held is unknown: an earlier sub-process had held more"
        limit = self.usage.group.limit_bytes
        samples = self.usage.samples
        if limit is not None:
            rest = f"the limit of its container is {megabytes(limit)}"
        elif samples:
            rest = f"{megabytes(samples[-1].available_bytes)} of the node's memory were left"
        else:
            return f"{held}."
        return f"{held}; {rest}."

    def _last_minutes(self) -> str:
        """Return a sentence about the file with the samples, which the driver writes."""
        file = self.spec.last_minutes
        return f"Its last minutes: {file}." if file and self.usage.samples else ""


def _deadlines(limits: Limits, calls: Calls | None = None) -> dict[Phase, _Deadline]:
    run_s = limits.run_timeout_s
    gather_s = 0.0 if calls is None else GATHER_S
    grace_s = CANCELS_WITHIN_S if calls is not None and calls.is_async else gather_s
    load = _Deadline(limits.load_timeout_s, "loading", "task_overhead_timeout")
    smaller = ", or lower mini_batch_size"
    return {
        Phase.STARTING: _Deadline(START_TIMEOUT_S, "the start of the process", ""),
        Phase.INIT: _Deadline(limits.init_timeout_s, "init()", "init_timeout"),
        Phase.IDLE: load,
        Phase.LOADING: load,
        Phase.RETURNING: load._replace(what="returning what run() made"),
        Phase.RUNNING: _Deadline(run_s, "run()", "run_invocation_timeout", smaller, grace_s),
        Phase.CANCELING: _Deadline(
            limits.shutdown_timeout_s,
            f"run() exceeded {limits.run_timeout_s:g} s and did not end when it was canceled: that",
            "shutdown_timeout",
            grace_s=gather_s,
        ),
        Phase.WAITING: _Deadline(NEVER_S, "waiting for a permit", ""),
        Phase.SHUTDOWN: _Deadline(limits.shutdown_timeout_s, "shutdown()", "shutdown_timeout"),
    }


def deadlines_s(limits: Limits) -> dict[str, float]:
    """Return the timeout of each phase in seconds, by the phase's name."""
    return {
        phase.name.lower(): deadline.seconds
        for phase, deadline in _deadlines(limits).items()
        if phase not in (Phase.IDLE, Phase.WAITING)
    }


def _other_version(protocol: int) -> str:
    return (
        f"an agent speaks protocol {protocol} and its supervisor {PROTOCOL}: another daskprs is "
        "installed where the agents run. Install the same version on every node."
    )
