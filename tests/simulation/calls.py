"""Agents that make several calls of `run` at a time, as functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from daskprs._agent.child.outbox import OF_CALLS_S
from daskprs._agent.protocol.messages import ExtendLease, RunLease, Stop, TruncateLease
from daskprs._agent.protocol.shared_page import NOTHING, Activity, Phase
from daskprs._agent.supervision.supervisor import CANCELS_WITHIN_S, GATHER_S, OF_CALLS
from daskprs._core.outcomes import Failure, Outcome, Status
from daskprs._core.soundness import Soundness
from tests.simulation.agents import LOAD_S, Agent
from tests.simulation.attempts import ItemsAttempt, in_steps
from tests.simulation.far import look_at
from tests.simulation.items import DIES, GOOD, HANGS, RAISES
from tests.simulation.world import EPOCH_S, now

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from tests.simulation.agents import Act

URGENCY = {Phase.CANCELING: 2, Phase.RUNNING: 1, Phase.WAITING: -1}
"""Which call the supervisor looks at: the highest one, and the oldest of these."""


@dataclass
class Call:
    """What the shared page says of one call; it stands for the page, as an attempt sees it."""

    position: int
    failed_before: int
    """Number of calls of the process that had failed when it began."""
    phase: Phase = Phase.LOADING
    since_s: float = 0.0
    total: int = 0
    piece: int = 0

    def enter(self, phase: Phase, _: int = NOTHING, total: int = 0) -> None:
        """Note what the call turns to."""
        self.phase, self.since_s, self.total = phase, now().now_s, total

    def turn_to(self, piece: int) -> None:
        """Note which piece of the mini-batch comes next."""
        self.piece = piece


class CallsAgent(Agent):
    """An agent whose script has several mini-batches at a time."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        assert self._job.calls is not None
        self._at_once, self.is_async = self._job.calls
        self.grace_s = CANCELS_WITHIN_S if self.is_async else GATHER_S
        self._under_way: dict[int, Call] = {}
        self._soundness = Soundness()
        self._groups = 0
        """Number of messages with outcomes."""

    # ---- the process ----

    def _serve(self) -> Iterator[float | None]:
        while True:
            yield from self._wait_for_message()
            match self._inbox.pop(0):
                case RunLease(order, work, _, most_in_a_row):
                    self._begin(order, work, most_in_a_row)
                case ExtendLease(order, work) if order == self._order and not self._is_halted:
                    self._extend(work)
                case TruncateLease(order, last) if order == self._order and not self._is_halted:
                    self._cut(last)
                case Stop():
                    return
            self._fill()

    def _fill(self) -> None:
        """Begin as many calls as there may be at a time."""
        while len(self._under_way) < self._at_once and self._next <= self._last:
            position = self._next
            self._next += 1
            self._under_way[position] = call = Call(position, self._soundness.failures)
            call.enter(Phase.LOADING)
            self._step(self._made(call))

    def _step(self, steps: Iterator[float | None]) -> None:
        if self._returncode is None and not self._worker.is_dead:
            seconds = next(steps, None)
            if seconds is not None:
                self._loop.call_later(seconds, self._step, steps)

    def _made(self, call: Call) -> Iterator[float | None]:
        """Make an attempt beside others, and report it."""
        assigned = self._work[call.position]
        yield LOAD_S
        self._calls += 1
        look_at(self._job, assigned.mini_batch)
        act = self.script.act(assigned.mini_batch.index)
        if self.script.has_items:
            made = ItemsAttempt(self, assigned, call.position, act, call).made
            outcome, body = yield from in_steps(made, self.spool)
        else:
            outcome, body = yield from self._called(call, act)
        call.enter(Phase.RETURNING)
        self._end(call, outcome._replace(failed_before=call.failed_before), body)

    def _called(self, call: Call, act: Act) -> Generator[float | None, None, tuple[Outcome, bytes]]:
        mini_batch, attempt, *_ = self._work[call.position]
        begun_s, index = now().now_s, mini_batch.index
        call.enter(Phase.RUNNING, total=1)
        if self.requests is not None:
            yield from self.requests.begun(call, call.position, index)
        if act.what != GOOD:
            self.script.caused[index] = self.script.caused.get(index, 0) + 1
        if act.what == HANGS:
            yield self._limits.run_timeout_s if self.is_async else None
            call.enter(Phase.CANCELING, total=1)
            if act.ahead:  # the coroutine goes on when it is canceled
                yield None
        yield act.seconds
        if act.what == DIES:
            self.die(-9)
            yield None
        if act.what == HANGS:
            if self.requests is not None:
                self.requests.canceled()
            failure = Failure("TimeoutError", "run() took too long, and was canceled")
            took_s = now().now_s - begun_s
            status = Status.RUN_TIMEOUT
            times_s = EPOCH_S + begun_s, took_s, took_s, took_s
            return Outcome(index, attempt, status, 1, 0, *times_s, failure=failure), b""
        what = RAISES if self.is_poisoned and act.what == GOOD else act.what
        return self._made_request(self._work[call.position], begun_s, what)

    def _end(self, call: Call, outcome: Outcome, body: bytes) -> None:
        """Report an attempt; take no more work where the process may be broken or is worn."""
        has_failed = outcome.status is not Status.RUN_DONE
        if not outcome.is_neutral:
            (self._soundness.fail if has_failed else self._soundness.succeed)(call.failed_before)
        is_broken = has_failed and not outcome.is_neutral
        is_broken &= self._soundness.in_a_row >= self._most_in_a_row
        if is_broken or self._lifetime.is_over():
            self._is_halted = True
            self._cut(self._next - 1)
        is_last = len(self._under_way) == 1
        self._report(outcome, body)
        if is_last and self._is_halted:
            # As with one call at a time, one whose last attempt has failed gets a trial.
            self._has_done_enough = not has_failed and self._soundness.in_a_row == 0
            self._send(halted="")
        else:
            self._send_in_time(at_once=is_last and self._next > self._last)
        self.enter(Phase.IDLE)
        del self._under_way[call.position]
        self._fill()

    def _report(self, outcome: Outcome, body: bytes) -> None:
        """Let the outcome be sent, with others that follow it soon."""
        super()._report(outcome, body)
        if len(self._pending) == 1:
            self._loop.call_later(OF_CALLS_S, self._send_late, self._groups)

    def _send_late(self, group: int) -> None:
        if group == self._groups and self._returncode is None and not self._worker.is_dead:
            self._send()

    def _send(self, halted: str | None = None) -> None:
        self._groups += 1
        super()._send(halted)

    # ---- what the slot sees ----

    def look(self) -> Activity:
        """Return what the most urgent call does."""
        calls = self._under_way.values()
        if not calls:
            return super().look()
        first = min(calls, key=lambda one: (-URGENCY.get(one.phase, 0), one.since_s))
        beside = tuple(call.position for call in calls if call is not first)
        return self._activity(first)._replace(beside=beside)

    def _activity(self, call: Call) -> Activity:
        since_ns = int(call.since_s * 1e9)
        at = call.phase, call.position, since_ns, self._order, NOTHING, 0
        return Activity(*at, call.total, call.piece)

    def late_beside(self, judged: Activity) -> list[Activity]:
        """Return the other calls that have exceeded their timeouts."""
        beside = [self._activity(call) for call in self._under_way.values()]
        return [
            one
            for one in beside
            if one.position in judged.beside
            and one.phase is judged.phase
            and one.phase in OF_CALLS
            and now().now_s - one.since_ns / 1e9 > self._own_s(one)
        ]

    def _own_s(self, call: Activity) -> float:
        if call.phase is Phase.CANCELING:
            return self._limits.shutdown_timeout_s
        return self.timeout_of(call)
