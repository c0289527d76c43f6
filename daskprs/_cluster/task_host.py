"""The host of a Dask task: its worker, or this process; and what ends with the task or the host."""

from __future__ import annotations

import asyncio
import logging
import pickle
import tempfile
import threading
import warnings
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import dask
from distributed import WorkerPlugin, get_client, get_worker

from daskprs._agent.node.environment import usable_cores
from daskprs._agent.node.site import new_probe
from daskprs._cluster.aside import call_aside, called_aside
from daskprs._cluster.worker_answers import answers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distributed import Client, Worker

NAME = "daskprs-tasks"
HERE = "this process"
LOGGER = "distributed.worker.daskprs"
"""The logger whose messages Dask shows as those of the worker."""


class TaskHost(NamedTuple):
    """The process in which a task runs: a worker, or the caller's."""

    name: str
    """Address of the worker, or `HERE`."""
    folder: Path
    """A folder for files of this host."""
    threads: int
    """Number of threads that run tasks."""
    logger: str
    """The logger whose messages Dask shows as those of the worker."""


def host_of_task() -> TaskHost:
    """Return the host of the task in this thread; without a worker it is this process."""
    worker = _worker()
    if worker is None:
        folder = Path(tempfile.gettempdir())
        threads = dask.config.get("num_workers", None) or usable_cores()
        return TaskHost(HERE, folder, threads, "daskprs.tasks")
    folder = Path(worker.local_directory)
    threads = worker.state.nthreads
    return TaskHost(worker.address, folder, threads, LOGGER)


def client_of_task() -> Client | None:
    """Return a client of the cluster that runs the task in this thread; None without a worker."""
    return None if _worker() is None else get_client()


def warn_caller(message: str) -> None:
    """Warn whoever computes: the clients of the task's cluster, or without a worker the caller.

    Unlike `distributed.warn`, a cluster in the caller's process does not warn twice.
    """
    worker = _worker()
    if worker is None:
        warnings.warn(message, stacklevel=2)
        return
    logging.getLogger(LOGGER).warning(message)
    told = {"message": pickle.dumps(message), "category": pickle.dumps(UserWarning)}
    worker.log_event("warn", told)


def blind_workers(place: Path) -> list[str]:
    """Return the workers of the task's cluster that do not see a file where it can be written.

    The file is made for that, and removed.
    """
    client = client_of_task()
    if client is None:
        return []
    with ExitStack() as removing:
        probe = new_probe(place, removing)
        seen, _ = answers_of(client, probe.is_seen)  # what has gone writes nothing
    return [worker for worker, sees in seen.items() if not sees]


def _worker() -> Worker | None:
    try:
        return get_worker()
    except ValueError:
        return None


class TaskEnds(WorkerPlugin):  # type: ignore[misc] # distributed is not typed
    """Ends what tasks have begun: with a task that is cancelled, and with the worker."""

    def __init__(self) -> None:
        self.of_tasks: dict[Any, Callable[[], None]] = {}
        """Functions that end the work of a task, by its key."""
        self.of_worker: set[Callable[[str], None]] = set()
        """Functions that end the work of a worker, given its address."""
        self.lock = threading.Lock()
        """Held while the work of a task is ended: no other task may have its place by then."""

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:  # noqa: ARG002
        """End the work of a cancelled task, whose thread does not notice the cancellation."""
        if start in ("executing", "long-running") and finish in ("released", "forgotten"):
            end = self.of_tasks.get(key)
            if end is not None:
                call_aside(self._end, key, end)

    def _end(self, key: Any, end: Callable[[], None]) -> None:
        """End the work of a task, unless it has ended; it may run again by now."""
        with self.lock:
            if self.of_tasks.get(key) is end:
                end()

    async def teardown(self, worker: Worker) -> None:
        """End all work: a task that waits for it would hold up the worker's end."""
        for end in list(self.of_tasks.values()):
            await called_aside(end)
        for end_all in list(self.of_worker):
            await called_aside(end_all, worker.address)


def end_with_worker(end: Callable[[str], None]) -> None:
    """Call a function with the address of the worker when the worker of this task ends."""
    worker = _worker()
    if worker is not None:
        _ends_on(worker).of_worker.add(end)


@contextmanager
def ended_with_task(end: Callable[[], None]) -> Iterator[None]:
    """Call a function if the task of this thread is cancelled within the block."""
    worker = _worker()
    if worker is None:
        yield
        return
    ends, key = _ends_on(worker), worker.get_current_task()
    own = partial(end)  # the next run of the task may have the same function
    ends.of_tasks[key] = own
    try:
        yield
    finally:
        with ends.lock:
            if ends.of_tasks.get(key) is own:  # else the task runs again already
                del ends.of_tasks[key]


def _ends_on(worker: Worker) -> TaskEnds:
    """Return the plugin of a worker, which gets it with the first task that asks."""
    ends: TaskEnds | None = worker.plugins.get(NAME)
    if ends is None:
        loop = worker.loop.asyncio_loop
        ends = asyncio.run_coroutine_threadsafe(_plugin_of(worker), loop).result()
    return ends


async def _plugin_of(worker: Worker) -> TaskEnds:
    if NAME not in worker.plugins:
        await worker.plugin_add(TaskEnds(), NAME)
    plugin: TaskEnds = worker.plugins[NAME]
    return plugin
