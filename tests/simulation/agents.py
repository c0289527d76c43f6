"""Agents that are functions: they do to their mini-batches what the seed says."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._agent.child.lifetime import Lifetime
from daskprs._agent.protocol.messages import (
    ExtendLease,
    InitDone,
    Outcomes,
    RunLease,
    Stop,
    TruncateLease,
)
from daskprs._agent.protocol.shared_page import NOTHING, Activity, Phase
from daskprs._core.columnar import ColumnBatch
from daskprs._core.lease import AgentExited
from daskprs._core.limits import NEVER_S
from daskprs._core.outcomes import Failure, Outcome, Results, Status
from daskprs._output.spool import AgentSpool, Sink, UnwritableError
from tests.simulation.attempts import ItemsAttempt, formatted, in_steps, spooled
from tests.simulation.endpoints import TOKENS, tokens_of
from tests.simulation.far import look_at
from tests.simulation.items import (
    DIES,
    GOOD,
    HANGS,
    POISONS,
    RAISES,
)
from tests.simulation.promises import demand
from tests.simulation.stages import INIT_S, Wakes, done_by, read, write
from tests.simulation.world import EPOCH_S, now

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from daskprs._agent.protocol.messages import JobSpec
    from daskprs._agent.supervision.lease_run import LeaseRun
    from daskprs._core.lease import AgentAssignment
    from daskprs._core.mini_batch import Assigned, MiniBatch
    from daskprs._core.spending import Amounts
    from daskprs._output.spec import SpoolSpec
    from tests.simulation.endpoints import Refusal, Requests, Server
    from tests.simulation.items import Items
    from tests.simulation.world import Process

SEND_EVERY_S = 0.2
"""Seconds that a finished mini-batch may wait for others before it is reported."""
LOAD_S = 0.001
NO_ANSWER = (Status.THROTTLED, Status.RUN_TIMEOUT)
"""How attempts end whose requests have no answer."""
HEADER = "index row\n"
"""The header of mini-batches with rows, where the output has one."""


class Act(NamedTuple):
    """What `run` does at one attempt."""

    what: str
    seconds: float
    ahead: bool
    """Whether the next mini-batch is being loaded all the while, where that is allowed."""


class Script:
    """The entry script: what it does to each mini-batch.

    Parameters
    ----------
    act
        Returns what it does at a mini-batch.
    starts
        Returns what befalls the next start of a process.
    items
        What the items of mini-batches do; None: the mini-batches have one item each.
    server
        The endpoint that it calls; None: it calls none.
    init_s
        Seconds that `init` takes in a process of `run`.

    """

    def __init__(
        self,
        act: Callable[[int], Act],
        starts: Callable[[], str],
        items: Items | None = None,
        server: Server | None = None,
        init_s: float = INIT_S,
    ) -> None:
        self.server = server
        self.init_s = init_s
        self.act = act
        self.starts = starts
        self._items = items
        self.caused: dict[int, int] = {}
        """How often a mini-batch was at fault."""
        self.caused_by: dict[tuple[int, int], int] = {}
        """How often an item was, by mini-batch and number."""

    @property
    def has_items(self) -> bool:
        """Whether mini-batches have several items."""
        return self._items is not None

    @property
    def items(self) -> Items:
        """What the items of mini-batches do."""
        assert self._items is not None
        return self._items


def numbers_of(index: int) -> list[tuple[int, int]]:
    """Return the rows of a mini-batch; some have none."""
    return [(index, row) for row in range(index % 4)]


@cache
def rows_of(index: int) -> bytes:
    """Return the rows of a mini-batch as lines."""
    return b"".join(b"%d:%d\n" % row for row in numbers_of(index))


class Agent:
    """An agent process and its supervisor, as a slot of production sees them.

    The process works in events of the loop. It ends with its worker.
    """

    def __init__(  # noqa: PLR0915 - what a process has
        self,
        job: JobSpec,
        assignment: AgentAssignment,
        spool: SpoolSpec,
        worker: Process,
        script: Script,
        pid: int,
        requests: Callable[[Agent], Requests | None] = lambda _: None,
        node: int = 0,
        *,
        is_of_stage: bool = False,
    ) -> None:
        self.gone = False
        self.function = "run"
        self.also_wakes: tuple[int, ...] = ()
        """Signs that end the wait for a message, too."""
        self._init_s = INIT_S if is_of_stage else script.init_s
        self.pid = pid
        self.spec = SimpleNamespace(
            name=assignment.process,
            node=node,
            spool=spool,
            far=True,
            stdout="",
            stderr="",
            working_dir="/nowhere/work",
        )
        self.ready = InitDone(0.0)
        self.was_idle = False
        self.process = SimpleNamespace(orphaned=False, apart=())
        self.usage = SimpleNamespace(samples=())
        self.page = self
        self.run: LeaseRun | None = None
        self._job, self._limits = job, job.limits
        self.output = job.output
        self._worker = worker
        self.script = script
        self.spool = None if job.calls is not None else AgentSpool(spool)
        """None: several calls cannot append to one spool at the same time."""
        self._inbox: list[Any] = []
        self._outbox: list[Any] = []
        self._returncode: int | None = None
        self._order = 0
        self._work: list[Assigned] = []
        self._last = NOTHING
        """The last position of the order that the agent keeps."""
        self._ahead = NOTHING
        """The position that is being loaded while another one runs."""
        self._loads_ahead = False
        self._in_a_row = self._most_in_a_row = 0
        self.at_close: Callable[[], None] = lambda: None
        self._is_closed = False
        """Whether what it says of its permits can be read no more."""
        self.is_async = False
        """Whether a call that takes too long is canceled."""
        self.grace_s = 0.0
        """Seconds in which that happens."""
        self.is_poisoned = False
        """Whether each call of `run` fails from here on."""
        self.lacked_memory = False
        """Whether the process has ended for want of memory."""
        self._calls = 0
        """What the script has counted."""
        self._lifetime = Lifetime(job.limits)
        self._has_done_enough = False
        self._is_halted = False
        """Whether the rest of the order was dropped."""
        self._phase, self._position, self._since_s = Phase.STARTING, NOTHING, now().now_s
        self._next = self._done = self._total = self._piece = 0
        self._asked_s = now().now_s
        self._is_waiting = False
        """Whether the agent waits for a message."""
        self._pending: list[tuple[Outcome, bytes]] = []
        self._pending_s = 0.0
        self.died_s: float | None = None
        worker.at_end.append(self._note_death)
        self.requests = requests(self)
        self._loop = now().loop
        self._steps = self._work_on()
        self._go_on()

    # ---- the process ----

    def enter(self, phase: Phase, position: int = NOTHING, total: int = 0) -> None:
        """Note what the process turns to."""
        self._phase, self._position, self._since_s = phase, position, now().now_s
        self._total = total

    def turn_to(self, piece: int) -> None:
        """Note which piece of the mini-batch comes next."""
        self._piece = piece

    def _go_on(self) -> None:
        """Let the process take its next step; it is gone with its worker."""
        if self._returncode is None and not self._worker.is_dead:
            seconds = next(self._steps, None)
            if seconds is not None:
                self._loop.call_later(seconds, self._go_on)

    def _work_on(self) -> Iterator[float | None]:
        """Work; yield the seconds until the next step, None if something else leads to it."""
        yield 0.02
        self.enter(Phase.INIT)
        how = self.script.starts()
        if how == RAISES:
            self.die(41)
            return
        if how == HANGS:
            yield None
        yield self._init_s
        self.enter(Phase.IDLE)
        self._outbox.append("ready")
        yield from self._serve()
        self.enter(Phase.SHUTDOWN)
        yield 0.01
        self.die(0)

    def _serve(self) -> Iterator[float | None]:
        """Work until the supervisor sends `Stop`."""
        while True:
            yield from self._wait_for_message()
            match self._inbox.pop(0):
                case RunLease(order, work, prefetch, most_in_a_row):
                    self._loads_ahead = prefetch
                    self._begin(order, work, most_in_a_row)
                    yield from self._run_all()
                case ExtendLease(order, work) if order == self._order and not self._is_halted:
                    self._extend(work)
                    yield from self._run_all()
                case Stop():
                    return

    def _wait_for_message(self) -> Iterator[None]:
        while not self._inbox:
            self._is_waiting = True
            yield None

    def _begin(self, order: int, work: Iterable[Assigned], most_in_a_row: int) -> None:
        """Begin an order."""
        demand(not self._has_done_enough, "a process that has done enough gets more")
        self._order, self._work, self._is_halted = order, list(work), False
        self._last, self._next, self._done = len(self._work) - 1, 0, 0
        self._most_in_a_row = most_in_a_row

    def _extend(self, work: Iterable[Assigned]) -> None:
        self._work += list(work)
        self._last = len(self._work) - 1

    def _cut(self, last: int) -> None:
        """Drop the work beyond a position."""
        self._work = self._work[: last + 1]
        self._last = len(self._work) - 1

    def _hear(self) -> None:
        """Take what extends the order or cuts it short, between two mini-batches."""
        for message in list(self._inbox):
            match message:
                case ExtendLease(order, work) if order == self._order:
                    self._extend(work)
                case TruncateLease(order, last) if order == self._order:
                    self._cut(last)
                case TruncateLease():
                    pass
                case _:
                    continue
            self._inbox.remove(message)

    def _run_all(self) -> Iterator[float | None]:
        while True:
            self._hear()
            if self._next > self._last:
                break
            position = self._next
            self._next += 1
            if (yield from self._run(position)):
                return
        self._send()
        self.enter(Phase.IDLE)

    def _run(self, position: int) -> Generator[float | None, None, bool]:
        """Run a mini-batch; return whether the agent has halted."""
        mini_batch, _, _, work = self._work[position]
        begun_s = now().now_s
        self.enter(Phase.LOADING, position)
        self.turn_to(0)
        yield LOAD_S
        script, index = self.script, mini_batch.index
        self._calls += 1
        if work is None or work.source is None:
            look_at(self._job, mini_batch)
        else:
            read(work, index)
        act = script.act(index)
        act = act._replace(what=done_by(act.what, work, self._job.stages, index))
        is_next = act.ahead and self._loads_ahead and self._next <= self._last
        self._ahead = self._next if is_next else NOTHING
        if script.has_items and (work is None or work.target is None):
            made = ItemsAttempt(self, self._work[position], position, act, self).made
            outcome, body = yield from in_steps(made, self.spool)
            self._ahead = NOTHING
            return self._has_halted_with(outcome, body, position)
        self.enter(Phase.RUNNING, position, 1)
        if self.requests is not None:
            yield from self.requests.begun(self, position, index)
        if self.is_poisoned and act.what == GOOD:
            act = act._replace(what=RAISES)
        elif act.what != GOOD:
            script.caused[index] = script.caused.get(index, 0) + 1
        if act.what == HANGS:
            yield None
        yield act.seconds
        if act.what == DIES:
            self.die(-9)
            yield None
        self._ahead = NOTHING
        outcome, body = self._made_request(self._work[position], begun_s, act.what)
        return self._has_halted_with(outcome, body, position)

    def _made_request(self, assigned: Assigned, begun_s: float, what: str) -> tuple[Outcome, bytes]:
        """Return the outcome of an attempt that has had its answer, if it calls an endpoint."""
        mini_batch, attempt, _, work = assigned
        refusal = None
        if self.requests is not None:
            refusal = self.requests.ended(mini_batch.index, what)
        if refusal is not None:
            return _refused(mini_batch, attempt, begun_s, refusal), b""
        self.is_poisoned |= what == POISONS
        target = None if work is None else work.target
        if work is not None and target is not None and what == GOOD:
            write(work, mini_batch.index)
        return self._outcome(mini_batch, attempt, begun_s, what, has_rows=target is None)

    def _has_halted_with(self, outcome: Outcome, body: bytes, position: int) -> bool:
        """Report an attempt; return whether the agent halts after it, as that of production."""
        self._report(outcome, body)
        is_good, is_neutral = outcome.status is Status.RUN_DONE, outcome.is_neutral
        if not is_neutral:
            self._in_a_row = 0 if is_good else self._in_a_row + 1
        has_failed = self._in_a_row > 0 and not is_neutral
        if not (has_failed and self._in_a_row >= self._most_in_a_row):
            if not self._lifetime.is_over():
                self._send_in_time(at_once=self._work[position].work is not None)
                return False
            self._has_done_enough = is_good
        self._send(halted="")
        self._is_halted = True
        self._cut(position)
        self.enter(Phase.IDLE)
        return True

    def _outcome(
        self,
        mini_batch: MiniBatch,
        attempt: int,
        begun_s: float,
        what: str,
        *,
        has_rows: bool,
    ) -> tuple[Outcome, bytes]:
        """Return the outcome of an attempt, and the rows outside of the spool."""
        took_s, body, failure = now().now_s - begun_s, b"", None
        text = typed = header = None
        good = what == GOOD
        if not has_rows:
            pass
        elif good and (self.output.is_dataset or self.output.typed):
            made = formatted(tuple(numbers_of(mini_batch.index)), self.output)
            rows, body = spooled(made, self.spool)
            text, typed, header = rows.text, rows.typed, rows.header
        elif good:
            sink = Sink() if self.spool is None else Sink(self.spool.text, self.spool.from_bytes)
            sink.write(rows_of(mini_batch.index))
            text, body = sink.finish()
            header = HEADER if self.output.header else None
        if not good:
            failure = Failure("ValueError", f"mini-batch {mini_batch.index} is bad")
        status = Status.RUN_DONE if good else Status.RUN_EXCEPTION
        succeeded = 1 if good else 0
        outcome = Outcome(
            mini_batch.index,
            attempt,
            status,
            1,
            succeeded,
            EPOCH_S + begun_s,
            took_s,
            took_s,
            took_s,
            text,
            typed,
            header=header,
            failure=failure,
        )
        return outcome, body

    def _report(self, outcome: Outcome, body: bytes) -> None:
        """Let the outcome of an attempt be sent, now or with others."""
        self._done += 1
        outcome = outcome._replace(usage=self._used_by(outcome))
        is_other = any(bool(rows) and _is_aside(outcome) for _, rows in self._pending)
        if is_other or (body and any(_is_aside(one) for one, _ in self._pending)):
            self._send()  # rows are all in the spool, or all in the message
        if not self._pending:
            self._pending_s = now().now_s
        self._pending.append((outcome, body))
        self.enter(Phase.RETURNING, self._position, self._total)

    def _send_in_time(self, *, at_once: bool = False) -> None:
        """Send what waits for too long, or what the next stage waits for."""
        if at_once or now().now_s - self._pending_s >= SEND_EVERY_S:
            self._send()

    def flush(self) -> None:
        """Send what has ended, as a thread does while the process waits."""
        self._send()

    def _send(self, halted: str | None = None) -> None:
        if not self._pending and halted is None:
            return
        pending, self._pending = self._pending, []
        unwritten = ""
        try:
            if self.spool is not None:
                self.spool.flush()
        except UnwritableError as error:
            unwritten = str(error)
        outcomes = ColumnBatch(outcome for outcome, _ in pending)
        rows = b"".join(body for _, body in pending)
        name = "" if self.spool is None else self.spool.name
        results = Results(outcomes, rows, "" if rows else name, unwritten)
        self._outbox.append(Outcomes(self._order, results, halted))

    def _used_by(self, outcome: Outcome) -> Amounts:
        calls: Amounts = (("calls", 1.0),)
        if self.requests is None or outcome.status in NO_ANSWER:
            return calls
        return (*calls, (TOKENS, float(tokens_of(outcome.index))))

    def die(self, returncode: int) -> None:
        """End the process."""
        if self._returncode is None:
            self._returncode = returncode
            self._note_death()

    def _note_death(self) -> None:
        self.died_s = now().now_s if self.died_s is None else self.died_s

    @property
    def lives(self) -> bool:
        """Whether it and its worker live."""
        return self.died_s is None

    # ---- what the slot sees: the shared page ----

    def look(self) -> Activity:
        """Return what the agent does."""
        since_ns = int(self._since_s * 1e9)
        ahead = self._ahead
        at = self._phase, self._position, since_ns, self._order, ahead, self._done
        return Activity(*at, self._total, self._piece)

    def counted(self) -> Amounts:
        """Return what the script has counted."""
        calls: Amounts = (("calls", float(self._calls)),) if self._calls else ()
        tokens = 0 if self.requests is None else self.requests.tokens
        return (*calls, (TOKENS, float(tokens))) if tokens else calls

    def permits(self) -> Any:
        """Return what it says of its permits."""
        return self._asked().page.permits()

    def close(self) -> None:
        """Close the shared page."""
        self.at_close()
        self._is_closed = True

    def grant(self, *granted: int) -> Any:
        """Grant permits."""
        return self._asked().page.grant(*granted)

    def _asked(self) -> Requests:
        assert self.requests is not None
        if self._is_closed:
            msg = "the page is closed"
            raise ValueError(msg)
        return self.requests

    def printed(self) -> Any:
        """Return what it printed."""
        return (0, 0)

    def claimed(self, order: int) -> int:
        """Return the last position that is begun."""
        return max(self._next - 1, self._ahead) if order == self._order else NOTHING

    def recall(self, order: int) -> int:
        """Take back what is not begun; return the last position that is."""
        if order == self._order:
            self._cut(min(self._last, self.claimed(order)))
        return self.claimed(order)

    # ---- what the slot sees: the supervisor ----

    def send(self, message: Any) -> None:
        """Send a message."""
        self._asked_s = now().now_s
        self._inbox.append(message)
        if self._is_waiting:
            self._is_waiting = False
            self._loop.call_soon(self._go_on)
        self.gone = self._returncode is not None

    def receive(self, within_s: float = 1.0) -> list[Any]:
        """Return messages; wait for the first one."""
        if self.gone:
            return []
        wait_s = max(0.0, min(within_s, self._left_s()))
        now().wait(self._has_news, wait_s)
        messages = self.drain()
        self.gone = self._returncode is not None
        return messages

    def _has_news(self) -> bool:
        is_awake = not Wakes.readable.isdisjoint(self.also_wakes)
        return is_awake or bool(self._outbox) or self._returncode is not None

    def excuse(self) -> None:
        """Begin the deadline of an idle agent anew."""
        self._asked_s = now().now_s

    def drain(self) -> list[Any]:
        """Return the messages that are there."""
        messages, self._outbox = self._outbox, []
        return messages

    def distrust(self, why: str) -> None:
        """Never happens: these agents send what they should."""
        raise AssertionError(why)

    def alive(self) -> bool:
        """Say whether the process lives."""
        return not self.gone and self._returncode is None

    def make_ready(self) -> Failure | None:
        """Wait for the end of `init`."""
        while True:
            if "ready" in self.receive():
                return None
            if self.gone:
                return Failure("ValueError", "init failed")
            if self.overdue() is not None:
                self.end()
                return Failure("TimeoutError", "init() took too long")

    def _left_s(self) -> float:
        limits, activity = self._limits, self.look()
        age_s = now().now_s - activity.since_ns / 1e9
        match activity.phase:
            case Phase.INIT:
                return limits.init_timeout_s - age_s
            case Phase.RUNNING:
                return self.timeout_of(activity) + self.grace_s - age_s
            case Phase.WAITING:
                return NEVER_S
            case Phase.SHUTDOWN | Phase.CANCELING:
                return limits.shutdown_timeout_s - age_s
            case Phase.IDLE | Phase.STARTING:
                age_s = min(age_s, now().now_s - self._asked_s)
        return limits.load_timeout_s - age_s

    def timeout_of(self, call: Activity) -> float:
        """Return the seconds that a call of `run` may take, as the supervisor knows it."""
        return self.timeout_s(self.run and self.run.timeout_of(call))

    def timeout_s(self, own_s: float | None) -> float:
        """Return the seconds that a call of `run` may take; that for a piece may have fewer."""
        return min(self._limits.run_timeout_s, own_s or self._limits.run_timeout_s)

    def overdue(self) -> Activity | None:
        """Return an activity that takes too long."""
        return None if self._left_s() > 0 else self.look()

    def late_beside(self, judged: Activity) -> list[Activity]:  # noqa: ARG002
        """Return no other call: there is one at a time."""
        return []

    def timeout(self, activity: Activity) -> Failure:
        """Return the failure of an activity that took too long."""
        return Failure("TimeoutError", f"{activity.phase.name} took too long")

    def too_big(self) -> None:
        """Never: these agents hold no memory."""

    def stop(self) -> AgentExited:
        """Shut down."""
        self.send(Stop())
        now().wait(lambda: self._returncode is not None, self._limits.shutdown_timeout_s)
        exited = AgentExited(self.spec.name, self.end(), "stopped", expected=True)
        return exited._replace(counted=self.counted())

    def end(self, *, dump: bool = False, grace_s: float = 0.0) -> int:  # noqa: ARG002
        """Kill the process."""
        self.gone = True
        self.die(-9)
        if self.spool is not None:
            self.spool.forget()
        assert self._returncode is not None
        return self._returncode

    def death(self, returncode: int, when: str) -> Failure:
        """Return the failure of a process that has died."""
        if self.lacked_memory:
            return Failure("MemoryError", f"{self.spec.name} ran out of memory {when}")
        return Failure("PROCESS_DIED", f"{self.spec.name} exits with {returncode} {when}")

    def peak_bytes(self, _: float) -> int:
        """Return no memory."""
        return 0


def _refused(mini_batch: MiniBatch, attempt: int, begun_s: float, refusal: Refusal) -> Outcome:
    """Return the outcome of an attempt that an endpoint has refused."""
    took_s = now().now_s - begun_s
    failure = Failure("RateLimitError", "too many requests", retryable=not refusal.is_final)
    times_s = EPOCH_S + begun_s, took_s, took_s, took_s
    status = Status.THROTTLED
    outcome = Outcome(mini_batch.index, attempt, status, 1, 0, *times_s, failure=failure)
    return outcome._replace(wait_s=refusal.after_s)


def _is_aside(outcome: Outcome) -> bool:
    """Say whether rows of an outcome are in the spool."""
    extents = (outcome.text, outcome.typed)
    return any(one is not None and one.offset is not None for one in extents)
