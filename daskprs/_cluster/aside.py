"""Calls beside the loop of a worker: each has a thread of its own, and the loop goes on.

The threads that asyncio and Dask share are few, and a call that waits for a disk may keep one for
ever. The next call, such as the one that kills the agents, would wait behind it.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def call_aside(call: Callable[..., object], *given: Any) -> None:
    """Call a function in a thread, whose end nobody awaits."""
    try:
        threading.Thread(target=call, args=given, name="daskprs-aside", daemon=True).start()
    except RuntimeError:  # no more threads
        call(*given)


async def called_aside(call: Callable[..., T], *given: Any) -> T:
    """Call a function in a thread, and return its result; the loop goes on meanwhile."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(result: Any, error: Exception | None) -> None:
        if answer.done():  # cancelled
            return
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)

    def work() -> None:
        result, failed = None, None
        try:
            result = call(*given)
        except Exception as error:  # noqa: BLE001 - it is raised where it is awaited
            failed = error
        with suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(settle, result, failed)

    call_aside(work)
    return await answer
