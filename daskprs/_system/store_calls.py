"""Calls of a store that are made at the same time: each waits for the network, not for the others.

Only a file system of fsspec that works in an event loop takes several calls at once, such as those
of S3, Azure, Google Cloud and HTTP. The connection of any other, as of SFTP, belongs to one thread.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

T = TypeVar("T")
R = TypeVar("R")

STORE_REQUESTS = 32
"""Calls at the same time, unless a job says it."""


def takes_several(filesystem: Any, method: str) -> bool:
    """Say whether a method of a file system is its coroutine ``_method``, made synchronous.

    A file system that adds to it, as one that reads from another, has a method of its own.
    """
    from inspect import iscoroutinefunction

    if not getattr(filesystem, "async_impl", False):
        return False
    coroutine = getattr(getattr(filesystem, method), "__wrapped__", None)
    return iscoroutinefunction(coroutine) and not filesystem.asynchronous


def at_once(
    filesystem: Any, calls: Sequence[Callable[[], Awaitable[T]]], most: int
) -> list[T | BaseException]:
    """Return what calls give, or their errors; `most` calls run at the same time.

    The first error cancels all others: the error of such a call is a `CancelledError`. So does an
    interrupt of this thread.
    """
    import asyncio

    future = asyncio.run_coroutine_threadsafe(_gathered(calls, most), filesystem.loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


async def _gathered(
    calls: Sequence[Callable[[], Awaitable[T]]], most: int
) -> list[T | BaseException]:
    import asyncio

    gate = asyncio.Semaphore(most)

    async def passed(call: Callable[[], Awaitable[T]]) -> T:
        async with gate:
            return await call()

    tasks = [asyncio.ensure_future(passed(call)) for call in calls]
    try:
        if tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
    return found


def each_in_order(work: Callable[[T], R], items: Iterable[T], most: int) -> Iterator[R]:
    """Yield the results of work on items, in order; threads do that of the next ones meanwhile.

    `work` raises its errors in the order of the items. After one, no further work begins.
    """
    from concurrent.futures import ThreadPoolExecutor

    remaining = iter(items)
    with ThreadPoolExecutor(most, "store") as threads:
        begun = deque(threads.submit(work, item) for item in islice(remaining, most))
        try:
            while begun:
                yield begun.popleft().result()
                begun.extend(threads.submit(work, item) for item in islice(remaining, 1))
        finally:
            for one in begun:
                one.cancel()
