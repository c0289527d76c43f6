"""The loop in which the coroutines of a script run, in a thread of its own.

Their callers wait in threads. So what comes before a call and after it, loading and formatting,
never keeps the loop, and a coroutine that blocks it is seen from outside.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from daskprs._agent.protocol.shared_page import NOTHING, SOMEBODY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

BLOCKED_AFTER_S = 1.0
"""Seconds without a turn after which the loop is blocked."""
LOOK_EVERY_S = 0.25
_position: ContextVar[int] = ContextVar("daskprs_position", default=SOMEBODY)
"""The position of the call that runs."""


class CallTimeout(TimeoutError):  # noqa: N818 - what it is
    """A call has exceeded its timeout, and was canceled."""


class Coroutines:
    """Runs coroutines for threads that wait for them."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_task_factory(self._task_of)
        self._is_closing = False
        self._thread = threading.Thread(target=self._serve, name="loop", daemon=True)
        self._thread.start()
        self._positions: WeakKeyDictionary[asyncio.Future[Any], int] = WeakKeyDictionary()
        """The positions of the calls whose tasks these are, or whose tasks have made them."""
        self._asked_s = time.monotonic()
        self._has_turned = True
        self._turned_s = self._asked_s
        """When the loop has turned last."""
        self.blocking = NOTHING
        """The position of the call that blocks the loop; `NOTHING` where none does, and `SOMEBODY`
        where a callback does."""
        self._blocked_s = 0.0
        """Seconds for which the loop was blocked so far …"""
        self._blocked_by_s: dict[int, float] = {}
        """… and by which calls."""

    def close(self) -> None:
        """End the loop and its thread."""
        self._is_closing = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _serve(self) -> None:
        """Run the loop; a task that raises `SystemExit`, or stops the loop, does not end it."""
        while not self._is_closing:
            with suppress(BaseException):
                self._loop.run_forever()

    def result(self, awaitable: Awaitable[Any]) -> Any:
        """Run something to its end."""
        return self._begun(awaitable, SOMEBODY)[0].result()

    def call(
        self,
        awaitable: Awaitable[Any],
        position: int,
        timeout_s: float,
        canceling: Callable[[], None],
    ) -> Any:
        """Run the call for a position of the order to its end; cancel it after its timeout.

        `canceling` is called before that. The time for which others have blocked the loop does not
        count.

        Raises
        ------
        CallTimeout
            After the timeout, whatever the coroutine then does.

        """
        self._blocked_by_s.pop(position, None)  # that of an earlier order
        blocked_s, until_s = self._blocked_by_others_s(position), time.monotonic() + timeout_s
        future, cancel = self._begun(awaitable, position)
        while True:
            try:
                return future.result(max(0.0, until_s - time.monotonic()))
            except TimeoutError as error:
                if future.done():  # it has raised this error itself, or has just ended
                    return future.result()
                is_blocked = self.blocking not in (NOTHING, position)
                if is_blocked or (self.blocking == NOTHING and not self._has_turned):
                    until_s = time.monotonic() + LOOK_EVERY_S
                elif (now_s := self._blocked_by_others_s(position)) > blocked_s:
                    until_s += now_s - blocked_s
                    blocked_s = now_s
                else:
                    canceling()
                    cancel()
                    self._wait_for_end(future, timeout_s, error)

    def _blocked_by_others_s(self, position: int) -> float:
        return self._blocked_s - self._blocked_by_s.get(position, 0.0)

    def _wait_for_end(self, future: Future[Any], timeout_s: float, at: TimeoutError) -> None:
        msg = f"run() exceeded {timeout_s:g} s, and was canceled"
        try:
            future.result()
        except BaseException as error:  # noqa: BLE001 - whatever a canceled coroutine raises
            # Its traceback leads to the line that waited.
            raise CallTimeout(msg).with_traceback(error.__traceback__) from None
        raise CallTimeout(msg) from at

    def _begun(
        self, awaitable: Awaitable[Any], position: int
    ) -> tuple[Future[Any], Callable[[], None]]:
        future: Future[Any] = Future()
        tasks: list[asyncio.Task[Any]] = []

        def begin() -> None:
            _position.set(position)
            tasks.append(self._loop.create_task(_awaited(awaitable)))
            tasks[0].add_done_callback(end)

        def end(task: asyncio.Task[Any]) -> None:
            if task.cancelled():
                future.set_exception(_cancelled(task))
            elif (error := task.exception()) is not None:
                future.set_exception(error)
            else:
                future.set_result(task.result())

        def cancel() -> None:
            self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])

        # The call takes the context variables of this thread along: they tell prints apart.
        self._loop.call_soon_threadsafe(begin)
        return future, cancel

    def _task_of(self, loop: asyncio.AbstractEventLoop, coro: Any, **given: Any) -> Any:
        """Return a task of the loop; those that a call makes, as `gather` does, are of the call."""
        task = asyncio.Task(coro, loop=loop, **given)
        self._positions[task] = _position.get()
        return task

    # ---- what the main thread looks at ----

    def look(self) -> str:
        """See whether the loop turns; return where it is blocked, when this is seen first."""
        now_s = time.monotonic()
        if self._has_turned:
            if self.blocking != NOTHING:
                own_s, seconds = self._blocked_by_s, self._turned_s - self._asked_s
                own_s[self.blocking] = own_s.get(self.blocking, 0.0) + seconds
                self._blocked_s += seconds
                self.blocking = NOTHING
            self._has_turned, self._asked_s = False, now_s
            self._loop.call_soon_threadsafe(self._turn)
        elif self.blocking == NOTHING and now_s - self._asked_s > BLOCKED_AFTER_S:
            task = asyncio.current_task(self._loop)
            self.blocking = SOMEBODY if task is None else self._positions.get(task, SOMEBODY)
            return self._place()
        return ""

    def _turn(self) -> None:
        self._turned_s, self._has_turned = time.monotonic(), True

    def _place(self) -> str:
        """Return the line of the script that the thread of the loop is at."""
        frame = sys._current_frames().get(self._thread.ident or 0)  # noqa: SLF001 - of debuggers
        stack = [] if frame is None else traceback.extract_stack(frame)
        own = [one for one in stack if "/lib/python" not in one.filename]
        own = own if own and own[-1].filename != __file__ else []
        if not own:
            return ""
        return (
            f'File "{own[-1].filename}", line {own[-1].lineno}, in {own[-1].name}: {own[-1].line}'
        )


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _cancelled(task: asyncio.Task[Any]) -> BaseException:
    """Return the error of a canceled task, with its traceback."""
    try:
        task.result()
    except asyncio.CancelledError as error:
        return error
    msg = "a canceled task has a result"
    raise AssertionError(msg)
