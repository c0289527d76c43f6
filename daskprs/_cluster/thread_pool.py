"""The thread pool of a Dask worker, and how a task leaves it to others."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from distributed import secede
from distributed.threadpoolexecutor import thread_state, threads_lock

if TYPE_CHECKING:
    from distributed.threadpoolexecutor import ThreadPoolExecutor

AGAIN_S = 0.1
"""Seconds until the lock of the pools is asked for again."""


def leave_the_threads() -> None:
    """Leave the worker's thread pool; stay in it if no other thread can be started.

    Dask takes this thread out of its pool first, and counts the other one before it starts. Raise
    `RuntimeError` if no other thread can be started, and `AttributeError` or `KeyError` if this
    thread runs no task of Dask, or has left the pool before.
    """
    pool = thread_state.executor
    try:
        secede()
    except RuntimeError:
        thread_state.proceed = True
        pool._threads.add(threading.current_thread())  # noqa: SLF001
        while not drop_threads_that_never_began(pool):
            time.sleep(AGAIN_S)
        raise


def drop_threads_that_never_began(pool: ThreadPoolExecutor) -> bool:
    """Take threads out of a worker's pool that could not be started; say whether that was possible.

    Dask counts them all the same. A pool that has nothing else takes tasks, and runs none. Dask
    holds the lock while it closes another worker of this process, for up to half a minute: the
    loop of this worker must not wait for it.
    """
    if not threads_lock.acquire(blocking=False):
        return False
    try:
        for thread in [one for one in pool._threads if one.ident is None]:  # noqa: SLF001
            pool._threads.discard(thread)  # noqa: SLF001
    finally:
        threads_lock.release()
    return True
