"""The loop in which the coroutines of a script run, in a thread of its own.

So a coroutine that blocks it is seen from outside, and named.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import traceback
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from daskprs._agent.child.attempt_run import CallTimeout
from daskprs._agent.child.failure import line_of
from daskprs._agent.child.forks import call_in_forks, end_fork_of
from daskprs._agent.protocol.shared_page import NOTHING, SOMEBODY
from daskprs.errors import OURS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

BLOCKED_AFTER_S = 1.0
"""Seconds without a turn after which the loop is blocked."""
LOOK_AGAIN_S = 0.05
"""Seconds before a call is looked at again: what it has left stays the same while it waits."""
NOT_OF_SCRIPTS = ("/lib/python", OURS)
"""What is in the names of files that are not those of a script."""
_position: ContextVar[int] = ContextVar("daskprs_position", default=SOMEBODY)


class _Timeout:
    """Cancels a task after a time, once nothing is left of it: `left_s` returns the seconds."""

    def __init__(
        self,
        task: asyncio.Task[Any],
        timeout_s: float,
        left_s: Callable[[], float],
        canceling: Callable[[], None],
    ) -> None:
        self.is_over = False
        self._task: asyncio.Task[Any] | None = task
        self._left_s = left_s
        self._canceling = canceling
        self._timer = task.get_loop().call_later(timeout_s, self._look)

    def end(self) -> None:
        """Look no more."""
        self._timer.cancel()
        self._task = None

    def _look(self) -> None:
        if self._task is None:
            return
        if (left_s := self._left_s()) > 0:
            loop = self._task.get_loop()
            self._timer = loop.call_later(max(LOOK_AGAIN_S, left_s), self._look)
        else:
            self.is_over = True
            self._canceling()
            self._task.cancel()


class Coroutines:
    """The loop, and which call blocks it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_task_factory(self._task_of)
        self._is_closing = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._serve, name="loop", daemon=True)
        self._thread.start()
        call_in_forks(self._leave)
        self._positions: WeakKeyDictionary[asyncio.Future[Any], int] = WeakKeyDictionary()
        """The positions of the calls whose tasks these are, or whose tasks have made them."""
        self._asked_s = time.monotonic()
        self._has_turned = True
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
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def _serve(self) -> None:
        """Run the loop; a task that raises `SystemExit`, or stops the loop, does not end it."""
        while not self._is_closing:
            with suppress(BaseException):
                self.loop.run_forever()
            end_fork_of(self._pid)

    def _leave(self) -> None:
        """End a fork that a coroutine has made, as soon as this gives up the loop.

        It would go on with the calls of all others, whose connections it shares.
        """
        if threading.get_ident() == self._thread.ident:
            self.loop._ready.clear()  # type: ignore[attr-defined] # noqa: SLF001 - no public way
            self.loop.stop()

    def result(self, awaitable: Awaitable[Any]) -> Any:
        """Run something to its end, for another thread that waits for it."""
        return asyncio.run_coroutine_threadsafe(_awaited(awaitable), self.loop).result()

    def hasten(self, count: int) -> None:
        """Let the tasks that the loop's thread has made last begin before others go on.

        So a call goes from its end to the next request in one turn of the loop. If all calls that
        are ready took each step together, they would wait for the last of them, begin the next
        requests together, and be ready together again.
        """
        self.loop._ready.rotate(count)  # type: ignore[attr-defined] # noqa: SLF001 - no public way

    async def call(
        self,
        awaitable: Awaitable[Any],
        position: int,
        timeout_s: float,
        canceling: Callable[[], None],
        waited_s: Callable[[], float] = lambda: 0.0,
    ) -> Any:
        """Run the call for a position of the order to its end; cancel it after its timeout.

        `canceling` is called before that. The time for which others have blocked the loop does not
        count, nor that for which the call has waited for permits, which `waited_s` returns. Raise
        `CallTimeout` after the timeout, whatever the coroutine then does.
        """
        self._blocked_by_s.pop(position, None)  # that of an earlier order
        until_s = time.monotonic() + timeout_s - self._blocked_by_others_s(position)
        waited_before_s = waited_s()
        # What the script does to its task, such as cancel it, does not reach the attempt.
        task = self.loop.create_task(_awaited(awaitable))
        self.hasten(1)

        def left_s() -> float:
            excused_s = self._blocked_by_others_s(position) + waited_s() - waited_before_s
            return until_s + excused_s - time.monotonic()

        timeout = _Timeout(task, timeout_s, left_s, canceling)
        at = None
        try:
            result = await task
        except BaseException as error:
            if not timeout.is_over:
                raise
            at = error.__traceback__  # it leads to the line that waited
        finally:
            timeout.end()
            # The task has the error, the error this frame: only a collection would free them, and
            # with them the rows.
            del task
        if not timeout.is_over:
            return result
        msg = f"run() exceeded {timeout_s:g} s, and was canceled"
        try:
            raise CallTimeout(msg).with_traceback(at)
        finally:
            del at

    def is_of(self, position: int) -> None:
        """Note the call that the running task, and what it makes, is of."""
        _position.set(position)
        task = asyncio.current_task()
        if task is not None:
            self._positions[task] = position

    def _blocked_by_others_s(self, position: int) -> float:
        return self._blocked_s - self._blocked_by_s.get(position, 0.0)

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
            self._has_turned, self._asked_s = False, now_s
            self.loop.call_soon_threadsafe(self._turn)
        elif self.blocking == NOTHING and now_s - self._asked_s > BLOCKED_AFTER_S:
            task = asyncio.current_task(self.loop)
            self.blocking = SOMEBODY if task is None else self._positions.get(task, SOMEBODY)
            return self._place()
        return ""

    def _turn(self) -> None:
        """Turn, before calls whose time is over meanwhile are looked at."""
        if self.blocking != NOTHING:
            seconds, own_s = time.monotonic() - self._asked_s, self._blocked_by_s
            own_s[self.blocking] = own_s.get(self.blocking, 0.0) + seconds
            self._blocked_s += seconds
            self.blocking = NOTHING
        self._has_turned = True

    def _place(self) -> str:
        """Return the line of the script that the thread of the loop is at."""
        frame = sys._current_frames().get(self._thread.ident or 0)  # noqa: SLF001 - of debuggers
        stack = [] if frame is None else traceback.extract_stack(frame)
        own = [one for one in stack if not any(name in one.filename for name in NOT_OF_SCRIPTS)]
        return line_of(own[-1]) if own else ""


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
