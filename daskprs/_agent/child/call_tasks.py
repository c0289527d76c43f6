"""Several calls of `run` as tasks of one loop.

The thread of the loop also loads and formats what is small: with a thread for each call, they would
hand the GIL round. What may take long has two threads of its own, and does not keep the loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from daskprs._agent.child.attempt_run import RunClock
from daskprs._agent.child.coroutines import Coroutines
from daskprs._agent.child.several_calls import SeveralCalls
from daskprs._agent.protocol.shared_page import NOTHING, Phase

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from multiprocessing.connection import Connection

    from daskprs._agent.child.attempt_run import AttemptRun
    from daskprs._agent.child.several_calls import Call, OfAgent
    from daskprs._core.mini_batch import Assigned

T = TypeVar("T")


class CallTasks(SeveralCalls):
    """The tasks of an agent that call `run`."""

    sleep = staticmethod(asyncio.sleep)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.coroutines: Coroutines = Coroutines()
        self._blocking = NOTHING
        """The position of the call that was seen to block the loop."""
        self._told = set[str]()
        self._free = deque(self._calls)
        self._tasks = set[asyncio.Task[None]]()
        self._loads, self._aside = (ThreadPoolExecutor(1, name) for name in ("loader", "aside"))
        for threads in (self._loads, self._aside):
            threads.submit(int).result()  # without free memory, a thread would begin no more

    def serve(self, connection: Connection, agent: OfAgent) -> None:
        """Let the calls be made until the supervisor sends `Stop`; then end the threads."""
        super().serve(connection, agent)
        for threads in (self._loads, self._aside):
            threads.shutdown(wait=False)

    async def result(self, awaitable: Awaitable[Any], attempt: AttemptRun, timeout_s: float) -> Any:
        """Return the result of a coroutine of the script; cancel it after its timeout."""
        canceling = partial(attempt.enter, Phase.CANCELING)
        waited_s = attempt.waited_s
        position = attempt.position
        return await self.coroutines.call(awaitable, position, timeout_s, canceling, waited_s)

    async def apart(self, function: Callable[[], T], attempt: AttemptRun) -> T:
        """Call a function that may take long, so that it keeps no other call waiting."""
        return await self._in(self._aside, function, attempt)

    async def _in(
        self, threads: ThreadPoolExecutor, function: Callable[[], T], attempt: AttemptRun
    ) -> T:
        """Call a function in another thread; meanwhile the attempt is late only if this is."""
        context = copy_context()

        def called() -> T:
            attempt.excuse()
            attempt.wait(waits=False)
            try:
                return context.run(function)
            finally:
                attempt.wait(waits=True)

        attempt.wait(waits=True)
        try:
            return await self.coroutines.loop.run_in_executor(threads, called)
        finally:
            attempt.wait(waits=False)

    def _tell(self) -> None:
        self.coroutines.loop.call_soon_threadsafe(self._begin)

    def _look(self, agent: OfAgent) -> None:
        """Show that the loop turns, or which call keeps it from that."""
        place, before = self.coroutines.look(), self._blocking
        self._blocking = self.coroutines.blocking
        if before not in (NOTHING, self._blocking):
            for call in self._calls:
                if call.position != before:
                    call.record.excuse()
        self._page.beat(self._blocking)
        if place and place not in self._told:
            self._told.add(place)
            agent.note(
                f"a coroutine keeps all others waiting for more than a second: {place}. Let it "
                "await, or call await asyncio.to_thread(...)."
            )

    # ---- the loop ----

    def _begin(self) -> None:
        """Begin attempts for as many mini-batches as there are, and calls free."""
        begun = 0
        while self._free:
            with self._turn:
                claimed = self._claim()
            if claimed is None:
                break
            begun += 1
            coroutine = self._attempt(self._free.popleft(), claimed)
            task = self.coroutines.loop.create_task(coroutine)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self.coroutines.hasten(begun)

    async def _attempt(self, call: Call, claimed: tuple[int, Assigned]) -> None:
        try:
            self.coroutines.is_of(claimed[0])
            agent, attempt = self._ready, self._begun(call, claimed, RunClock())
            if not agent.outbox.has_room:
                await self._in(self._aside, agent.outbox.wait_for_room, attempt)
            load = partial(self._load, attempt, claimed[1])
            if agent.loader.is_quick(claimed[1].mini_batch):
                load()
            else:
                await self._in(self._loads, load, attempt)
            outcome, payload = await agent.make(attempt)
            with self._turn:
                self._report(call, attempt, outcome, payload)
            self._free.append(call)
            self._begin()
        except BaseException as error:  # noqa: BLE001 - without an end, it would never return
            self.reserve.end(error)

    def _load(self, attempt: AttemptRun, assigned: Assigned) -> None:
        with self.loading:
            attempt.enter(Phase.LOADING)
            attempt.data, attempt.load_error = self._ready.loader.load(assigned)
