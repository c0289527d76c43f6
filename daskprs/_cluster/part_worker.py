"""A worker's part in writing a data set: each part is written in a process of its own.

The task leaves Dask's thread pool at once: it waits behind no lease, and takes no thread from other
work. Its process writes this part alone, in an interpreter without pandas and Dask. So the process
of the worker, which does not even load Arrow, neither grows nor holds its lock for long; nothing of
a part stays on the worker; and to kill the process is to end the attempt. Threads of the driver
would need no start, of a fifth of a second, but each needs up to 90 MB more of the driver's memory.
"""

from __future__ import annotations

import os
import pickle
import threading
from typing import TYPE_CHECKING, Any

from distributed import WorkerPlugin, get_worker
from tornado.ioloop import PeriodicCallback

from daskprs._agent.node.environment import agent_environment
from daskprs._agent.supervision.helper_pool import SPAWN, HelperPool
from daskprs._cluster.aside import call_aside, called_aside
from daskprs._cluster.thread_pool import leave_the_threads
from daskprs._output.dataset.part_attempt import write_aside
from daskprs._output.publish.open_uploads import SLOWEST_BYTES_PER_S

if TYPE_CHECKING:
    from distributed import Worker

    from daskprs._agent.node.site import ProbeFile

REPORT_EVERY_S = 2.0
THREADS_FOR_A_PART = 4
"""Number of threads of a worker for each part that the worker writes at a time."""


class PartsPlugin(WorkerPlugin):  # type: ignore[misc] # distributed is not typed
    """Reports how many parts a worker writes at a time, if it sees the folders of a data set.

    `probes` are files in these folders. The process of a part has `timeout_s` at least.
    """

    idempotent = True

    def __init__(
        self, name: str, topic: str, probes: tuple[ProbeFile, ...], timeout_s: float
    ) -> None:
        self.name = name
        self._topic = topic
        self._probes = probes
        self._timeout_s = timeout_s

    async def setup(self, worker: Worker) -> None:
        """Look at the folders, and report."""
        self._worker = worker
        self._processes: dict[int, HelperPool] = {}
        """The processes at work, by the number of the attempt."""
        self._ended: set[int] = set()
        """Attempts that are not wanted any more; some have not begun."""
        self._is_over = False
        self._lock = threading.Lock()
        """Held to begin or end attempts."""
        self._reporting = PeriodicCallback(self._report, 1000 * REPORT_EVERY_S)
        sees = await called_aside(lambda: all(one.is_seen() for one in self._probes))
        self._at_a_time = max(1, worker.state.nthreads // THREADS_FOR_A_PART) if sees else 0
        self._report()
        if sees:
            self._reporting.start()

    async def teardown(self, worker: Worker) -> None:  # noqa: ARG002 - named by Dask
        """Kill the processes that write."""
        self._reporting.stop()
        await called_aside(self._end_all)

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:  # noqa: ARG002
        """Kill the process of a cancelled part, whose thread does not notice the cancellation."""
        has_begun, is_over = (
            start in ("executing", "long-running"),
            finish in ("released", "forgotten"),
        )
        if has_begun and is_over and isinstance(key, tuple) and key[:1] == (self.name,):
            # In a thread: a process may take seconds to end, and the worker's loop has to send
            # heartbeats.
            call_aside(self._end, key[1])

    def write(self, number: int, attempts: str, plan: bytes, size_bytes: int) -> bytes:
        """Write a part, in a process of its own; return the attempt, as JSON."""
        environment = agent_environment(os.environ, None, threads=1)
        timeout_s = max(self._timeout_s, size_bytes / SLOWEST_BYTES_PER_S)
        with self._lock:
            if self._is_over or number in self._ended:
                msg = "the part is not wanted any more"
                raise RuntimeError(msg)
            self._processes[number] = process = HelperPool(environment, timeout_s, SPAWN)
        self._worker.loop.add_callback(self._report)
        try:
            what = f"write a part of {size_bytes:,} bytes"
            made: bytes = process.call(what, write_aside, attempts, number, plan)
        finally:
            process.close()
            with self._lock:
                del self._processes[number]
        return made

    def _end(self, number: int) -> None:
        with self._lock:
            self._ended.add(number)
            process = self._processes.get(number)
        if process is not None:
            process.close()

    def _end_all(self) -> None:
        with self._lock:
            self._is_over = True
            processes = [*self._processes.values()]
        for process in processes:
            process.close()

    def _report(self) -> None:
        worker = self._worker
        if worker.batched_stream.closed():  # the scheduler has removed this worker
            self._reporting.stop()
            call_aside(self._end_all)
            return
        report = worker.address, self._at_a_time, tuple(self._processes)
        worker.log_event(self._topic, pickle.dumps(report))


def write_on_worker(
    name: str, number: int, attempts: str, plan: bytes, size_bytes: int
) -> bytes | str:
    """Write a part (a Dask task); return the attempt as JSON, or the error of one that has failed.

    The error is text: Dask would log an exception, and the driver raises its own.
    """
    try:
        plugin: PartsPlugin = get_worker().plugins[name]
        leave_the_threads()
        return plugin.write(number, attempts, plan, size_bytes)
    except Exception as error:  # noqa: BLE001 - the driver writes the part then, and raises its own
        return f"{type(error).__name__}: {error}"
