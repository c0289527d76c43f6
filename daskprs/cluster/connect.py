"""The cluster that a job runs on: the one given, the current one, or one in this process."""

from __future__ import annotations

import logging
import threading
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import dask
from distributed import Client, LocalCluster, default_client, get_worker, rejoin, secede

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOPBACK = "127.0.0.1:0"
IN_PROCESS = {
    "processes": False,
    "n_workers": 1,
    # A worker that holds no data needs no limit; with one, it would pause when the caller holds
    # a big frame, since they are one process.
    "memory_limit": 0,
    # Dask starts its HTTP servers whether or not there is a dashboard: nobody outside sees them.
    "scheduler_kwargs": {"dashboard": False, "dashboard_address": LOOPBACK},
    "worker_dashboard_address": LOOPBACK,
    "silence_logs": logging.CRITICAL,
}
QUIET = {
    "distributed.admin.tick.limit": "1h",
    # Dask keeps its last messages for debugging, and with them every lease that they carried: a
    # kilobyte for each mini-batch.
    "distributed.admin.low-level-log-length": 10,
}


class Settings:
    """Settings of Dask, which are of the process, as long as any job of it needs them.

    Jobs in several threads end in any order: did each put back what it found, the last would put
    back what another one had set.
    """

    def __init__(self, settings: dict[str, object]) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._holders = 0
        self._set = ExitStack()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Have them set within the block."""
        with self._lock:
            if self._holders == 0:
                self._set.enter_context(dask.config.set(self._settings))
            self._holders += 1
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1
                if self._holders == 0:
                    self._set.close()


_QUIET = Settings(QUIET)


@contextmanager
def connected(client: Client | str | None, threads: int) -> Iterator[Client]:
    """Yield a client; what was started here is closed again.

    Parameters
    ----------
    client
        A client, the address of a scheduler, or None: the current client if there is one, else
        an in-process cluster that is not made the default.
    threads
        How many threads the in-process cluster declares.

    """
    if isinstance(client, str):
        with Client(client, set_as_default=False) as own:
            yield own
    elif client is not None:
        yield client
    else:
        current = current_client()
        if current is not None:
            yield current
        else:
            with _in_process(threads) as own:
                yield own


@contextmanager
def outside_pool(client: Client) -> Iterator[None]:
    """Leave the thread pool of the Dask task that this thread runs, if there is one.

    A task that keeps its thread while it waits for a job of its own cluster may wait for ever,
    since leases need a thread to begin. A task that has left the pool before does not return here.
    """
    left = _leave_pool(client)
    try:
        yield
    finally:
        if left:
            with suppress(RuntimeError):  # the worker is being closed
                rejoin()


def _leave_pool(client: Client) -> bool:
    """Leave the thread pool, and say whether this thread runs a task that was in it."""
    try:
        if get_worker().scheduler.address != client.scheduler.address:
            return False
        secede()
    except (ValueError, AttributeError, KeyError):  # no task, a coroutine, or a task outside
        return False
    return True


def current_client() -> Client | None:
    """Return the client that Dask itself would use; None where there is none."""
    try:
        return default_client()
    except ValueError:
        return None


@contextmanager
def _in_process(threads: int) -> Iterator[Client]:
    with (
        _QUIET.held(),
        LocalCluster(threads_per_worker=threads, **IN_PROCESS) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client
