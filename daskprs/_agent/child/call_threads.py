"""Several calls of `run` at the same time: a thread for each, which take turns at all else.

A thread holds the turn while it claims a mini-batch, formats rows and reports an outcome, and gives
it up while it loads and while the script works. So nothing but the script and a load ever runs
beside another thread of the agent, and the code of an attempt is that of an agent with one call.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from daskprs._agent.child.attempt_run import RunClock
from daskprs._agent.child.call_lines import CallPrints
from daskprs._agent.child.coroutines import LOOK_EVERY_S, Coroutines
from daskprs._agent.protocol.shared_page import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

    from daskprs._agent.child.inbox import Inbox
    from daskprs._agent.child.outbox import MemoryReserve
    from daskprs._agent.protocol.shared_page import CallRecord, SharedPage
    from daskprs._core.calls import Calls
    from daskprs._core.mini_batch import Assigned
    from daskprs._core.soundness import Soundness

EXIT_BROKEN = 70
"""The code of an agent in which our own code has failed (``EX_SOFTWARE``)."""


class Call:
    """One call: what its thread has of its own."""

    def __init__(self, threads: CallThreads, record: CallRecord) -> None:
        self.record = record
        self.position = 0
        self.clock: RunClock = _TurnClock(threads, record)
        self.failed_before = 0
        """Number of calls of the process that had failed when it began."""
        self._is_begun = False
        self._threads = threads
        self._prints = CallPrints(0)

    def begin(self, position: int, index: int) -> None:
        """Begin a call for a position of the order."""
        self.position = position
        self._prints = CallPrints(index)
        self._prints.begin()
        self.clock = _TurnClock(self._threads, self.record)
        self.failed_before = self._threads.soundness.failures
        self._is_begun = False

    def cpu_s(self) -> float:
        """Return 0 first, and then what the process has used since any call has ended, in seconds.

        What a call among others has used is not known, and their sum is.
        """
        is_first, self._is_begun = not self._is_begun, True
        return 0.0 if is_first else self._threads.cpu_since_s()

    def end(self) -> bool:
        """End it; return whether it has printed anything."""
        self._prints.end()
        return self._prints.has_printed


class _TurnClock(RunClock):
    """The clock of a call: while the script works, others have the turn."""

    def __init__(self, threads: CallThreads, record: CallRecord) -> None:
        super().__init__()
        self._threads = threads
        self._record = record

    def __enter__(self) -> Self:
        self._threads.turn.release()
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._threads.take_turn(self._record)


class CallThreads:
    """The threads of an agent that call `run`.

    Parameters
    ----------
    calls
        How many there are, and whether they wait for coroutines.
    page, reserve, soundness
        Those of the agent.

    """

    def __init__(
        self, calls: Calls, page: SharedPage, reserve: MemoryReserve, soundness: Soundness
    ) -> None:
        self.soundness = soundness
        self.turn = threading.Lock()
        self.coroutines = Coroutines() if calls.is_async else None
        self.in_flight = 0
        self._halted: str | None = None
        self._work = threading.Condition(self.turn)
        self._page = page
        self._reserve = reserve
        self._loading = threading.Lock()
        self._pid = os.getpid()
        self._claim: Callable[[], tuple[int, Assigned] | None] = lambda: None
        self._attempt: Callable[[Call, Assigned], None]
        self._cpu_before_s = 0.0
        self._told: set[str] = set()
        self._calls = [Call(self, page.call(number)) for number in range(calls.at_once)]
        for number, call in enumerate(self._calls):
            thread = threading.Thread(target=self._serve, args=(call,), daemon=True)
            thread.name = f"call{number}"
            thread.start()

    def serve(
        self,
        connection: Connection,
        inbox: Inbox,
        attempt: Callable[[Call, Assigned], None],
        note: Callable[[str], None],
    ) -> None:
        """Let the threads work until the supervisor sends `Stop`.

        `attempt` makes an attempt, and `note` tells people of a line that blocks the loop.
        """
        self._claim, self._attempt = inbox.claim_next, attempt
        self._cpu_before_s = time.process_time()
        while not inbox.stopped:
            while inbox.has_work or self.in_flight:
                self._look(note)
                if connection.poll(LOOK_EVERY_S):
                    break
            else:
                self._page.rest()
            message = inbox.next_message()
            with self._work:
                inbox.process(message)
                self._work.notify_all()

    def _look(self, note: Callable[[str], None]) -> None:
        """Show that the threads can run, and what keeps the loop from running."""
        if self.coroutines is None:
            self._page.beat()
            return
        blocked = self.coroutines.blocking
        place = self.coroutines.look()
        if blocked != NOTHING and self.coroutines.blocking == NOTHING:
            for call in self._calls:
                if call.position != blocked:
                    call.record.excuse()
        self._page.beat(self.coroutines.blocking)
        if place and place not in self._told:
            self._told.add(place)
            note(
                f"a coroutine keeps all others waiting for more than a second: {place}. Let it "
                "await, or call await asyncio.to_thread(...)."
            )

    @contextmanager
    def loading(self, record: CallRecord) -> Iterator[None]:
        """Give up the turn for a load; a reader is used by one thread at a time."""
        self.turn.release()
        try:
            with self._loading:
                yield
        finally:
            self.take_turn(record)

    def take_turn(self, record: CallRecord) -> None:
        """Take the turn; a fork of the agent has no threads to take turns with, and ends."""
        if os.getpid() != self._pid:
            os._exit(0)
        record.wait(waits=True)
        self.turn.acquire()
        record.wait(waits=False)

    def cpu_since_s(self) -> float:
        """Return the processor time of the process that was not returned before."""
        now_s = time.process_time()
        since_s, self._cpu_before_s = now_s - self._cpu_before_s, now_s
        return since_s

    def halted(self, text: str | None) -> str | None:
        """Take the text of an agent that takes no more work; return that of the first one.

        The supervisor hears of it with the last of the calls under way: the process ends then.
        """
        if self._halted is None or text:
            self._halted = text if text is not None else self._halted
        halted = self._halted
        if self.in_flight == 1:
            self._halted = None
        return halted

    # ---- a thread ----

    def _serve(self, call: Call) -> None:
        try:
            with self._work:
                while True:
                    while (claimed := self._claim()) is None:
                        self._work.wait()
                    position, assigned = claimed
                    self.in_flight += 1
                    call.begin(position, assigned.mini_batch.index)
                    self._attempt(call, assigned)
                    self.in_flight -= 1
                    call.record.rest()
        except MemoryError:
            self._reserve.end()
        except BaseException:  # noqa: BLE001 - without an end, the mini-batch would never return
            traceback.print_exc(file=sys.__stderr__)
            os._exit(EXIT_BROKEN)
