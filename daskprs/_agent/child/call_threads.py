"""Several calls of `run` in threads, one for each, which take turns at all else.

A thread holds the turn while it claims a mini-batch, formats rows and reports an outcome, and gives
it up while it loads and while the script works. So nothing but the script and a load ever runs
beside another thread of the agent, and the code of an attempt is that of an agent with one call.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, Self

from daskprs._agent.child.attempt_run import RunClock
from daskprs._agent.child.forks import end_fork_of
from daskprs._agent.child.script_calls import completed
from daskprs._agent.child.several_calls import SeveralCalls
from daskprs._agent.protocol.shared_page import Phase

if TYPE_CHECKING:
    from daskprs._agent.child.several_calls import Call
    from daskprs._agent.protocol.shared_page import CallRecord


class CallThreads(SeveralCalls):
    """The threads of an agent that call `run`."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._pid = os.getpid()
        self._work = threading.Condition(self._turn)
        """Notified where there may be a mini-batch to claim."""
        for number, call in enumerate(self._calls):
            thread = threading.Thread(target=self._serve, args=(call,), daemon=True)
            thread.name = f"call{number}"
            thread.start()

    def _tell(self) -> None:
        self._work.notify_all()

    def give_turn(self) -> None:
        """Let others have the turn."""
        self._turn.release()

    def take_turn(self, record: CallRecord) -> None:
        """Take the turn; a fork of the agent has no threads to take turns with, and ends."""
        end_fork_of(self._pid)
        record.wait(waits=True)
        self._turn.acquire()
        record.wait(waits=False)

    def _serve(self, call: Call) -> None:
        try:
            with self._work:
                while True:
                    while (claimed := self._claim()) is None:
                        self._work.wait()
                    self._attempt(call, claimed)
        except BaseException as error:  # noqa: BLE001 - without an end, it would never return
            self.reserve.end(error)

    def _attempt(self, call: Call, claimed: tuple[int, Any]) -> None:
        """Make an attempt, and report it; the thread has the turn."""
        agent, attempt = self._ready, self._begun(call, claimed, _TurnClock(self, call.record))
        self.give_turn()
        with self.loading:
            attempt.enter(Phase.LOADING)  # only now: others may have kept the reader for long
            attempt.data, attempt.load_error = agent.loader.load(claimed[1])
        self.take_turn(call.record)
        self._report(call, attempt, *completed(agent.make(attempt)))


class _TurnClock(RunClock):
    """The clock of a call: while the script works, others have the turn."""

    def __init__(self, threads: CallThreads, record: CallRecord) -> None:
        super().__init__()
        self._threads = threads
        self._record = record

    def __enter__(self) -> Self:
        self._threads.give_turn()
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._threads.take_turn(self._record)
