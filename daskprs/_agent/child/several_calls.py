"""Several calls of `run` at the same time: what those in threads and coroutines have in common."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._agent.child.attempt_run import AttemptRun
from daskprs._agent.child.call_lines import CallPrints
from daskprs._agent.protocol.shared_page import Phase
from daskprs._core.outcomes import PRINTED_SOMEWHERE

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from multiprocessing.connection import Connection

    from daskprs._agent.child.attempt_run import RunClock
    from daskprs._agent.child.coroutines import Coroutines
    from daskprs._agent.child.inbox import Inbox, Loader
    from daskprs._agent.child.outbox import MemoryReserve, Outbox
    from daskprs._agent.child.peak_memory import PeakMemory
    from daskprs._agent.protocol.shared_page import CallRecord, SharedPage
    from daskprs._core.mini_batch import Assigned
    from daskprs._core.outcomes import Outcome
    from daskprs._core.soundness import Soundness

LOOK_EVERY_S = 0.25


class OfAgent(NamedTuple):
    """What calls need of their agent."""

    inbox: Inbox
    outbox: Outbox
    loader: Loader
    peak: PeakMemory
    begin: Callable[[AttemptRun], None]
    """Begins an attempt, which loads its mini-batch next."""
    make: Callable[[AttemptRun], Coroutine[Any, Any, tuple[Outcome, bytes]]]
    """Makes an attempt that is loaded."""
    halt_after: Callable[[Outcome], str | None]
    """Counts an outcome; returns a text where the agent takes no more work."""
    note: Callable[[str], None]
    """Tells people something."""


class Call:
    """One call: what it has of its own."""

    def __init__(self, record: CallRecord) -> None:
        self.record = record
        self.position = 0
        self.prints = CallPrints(0)
        self.failed_before = 0
        """Number of calls of the process that had failed when it began."""


class SeveralCalls(ABC):
    """The calls of an agent, `at_once` at a time."""

    coroutines: Coroutines | None = None
    """The loop of those that are coroutines; None: they are in threads."""

    def __init__(
        self, at_once: int, page: SharedPage, reserve: MemoryReserve, soundness: Soundness
    ) -> None:
        self._calls = [Call(page.call(number)) for number in range(at_once)]
        self._page = page
        self.reserve = reserve
        self._soundness = soundness
        self._turn = threading.Lock()
        """Held while a mini-batch is claimed, or a message processed."""
        self.loading = threading.Lock()
        """Held during a load: a reader is used by one thread at a time."""
        self._in_flight = 0
        self._halted: str | None = None
        self._cpu_before_s = 0.0
        self._agent: OfAgent | None = None
        """None: it is not ready."""

    def serve(self, connection: Connection, agent: OfAgent) -> None:
        """Let the calls be made until the supervisor sends `Stop`."""
        inbox = agent.inbox
        self._cpu_before_s = time.process_time()
        self._agent = agent
        while not inbox.stopped:
            while inbox.has_work or self._in_flight:
                self._look(agent)
                if connection.poll(LOOK_EVERY_S):
                    break
            else:
                self._page.rest()
            message = inbox.next_message()
            with self._turn:
                inbox.process(message)
                self._tell()

    @abstractmethod
    def _tell(self) -> None:
        """Say that there may be a mini-batch to claim; the turn is held."""

    def _look(self, agent: OfAgent) -> None:  # noqa: ARG002 - of those that do more
        """Show that the calls can be made."""
        self._page.beat()

    def _claim(self) -> tuple[int, Assigned] | None:
        """Claim a mini-batch; the turn is held."""
        claimed = None if self._agent is None else self._agent.inbox.claim_next()
        if claimed is not None:
            self._in_flight += 1
        return claimed

    def _begun(self, call: Call, claimed: tuple[int, Assigned], clock: RunClock) -> AttemptRun:
        """Begin an attempt."""
        agent, (position, assigned) = self._ready, claimed
        call.position = position
        call.prints = CallPrints(assigned.mini_batch.index)
        call.prints.begin()
        call.failed_before = self._soundness.failures
        cpu_s = self._cpu_s_of_call().__next__
        attempt = AttemptRun(assigned, agent.peak, cpu_s, call.record, position, clock)
        agent.begin(attempt)
        return attempt

    @property
    def _ready(self) -> OfAgent:
        assert self._agent is not None, "nothing is claimed before"  # noqa: S101 - for the types
        return self._agent

    def _report(self, call: Call, attempt: AttemptRun, outcome: Outcome, payload: bytes) -> None:
        """Report an attempt; one at a time does.

        The supervisor hears that the agent takes no more work with the last of the calls under way:
        the process ends then.
        """
        agent = self._ready
        attempt.enter(Phase.RETURNING)
        call.prints.end()
        printed = PRINTED_SOMEWHERE if call.prints.has_printed else None
        outcome = outcome._replace(failed_before=call.failed_before, printed=printed)
        halted = agent.halt_after(outcome)
        if halted is not None:
            self._halted = self._halted or halted
            agent.inbox.drop()
        is_last = self._in_flight == 1
        agent.outbox.add(outcome, payload, self._halted if is_last else None)
        if is_last:
            self._halted = None
            if not agent.inbox.has_work:
                agent.outbox.flush()
        call.record.rest()
        self._in_flight -= 1

    def _cpu_s_of_call(self) -> Iterator[float]:
        """Yield 0 first, and then the processor time of the process since any call has ended.

        What one call among others has used is not known, their sum is.
        """
        yield 0.0
        while True:
            now_s = time.process_time()
            since_s, self._cpu_before_s = now_s - self._cpu_before_s, now_s
            yield since_s
