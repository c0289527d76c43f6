"""The driver's calls to a worker besides leases, sent through the scheduler.

Driver and worker need not reach each other; both reach the scheduler. A worker answers under the
name of the job, while the job's plugin is registered with the worker.
"""

from __future__ import annotations

import pickle
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
from distributed.protocol import to_serialize

from daskprs._cluster.aside import call_aside, called_aside
from daskprs._cluster.topics import plugin_name

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Coroutine

    from distributed import Client

    from daskprs._agent.node.site import ProbeFile, WorkerSite
    from daskprs._agent.supervision.far_stages import Preprocessed
    from daskprs._agent.supervision.pool import AgentPool
    from daskprs._core.lease import AgentEvent
    from daskprs._core.mini_batch import Assigned
    from daskprs._core.stages import StageHost

CALL_S = 60.0
"""Seconds in which a worker must answer a call."""


class Unreachable(Exception):  # noqa: N818 - what it is
    """A worker has not answered."""


class NodeService:
    """Answers calls for a worker, each in a thread, since disks may be slow.

    The threads do not come from Dask's pool, which other jobs' tasks may fill. They call `stopped`
    with the events of agents that have shut down, and `changed` with the number of this node, and
    the events of stage processes that work for slots of other nodes.
    """

    def __init__(
        self,
        site: WorkerSite,
        pool: AgentPool,
        stopped: Callable[[tuple[AgentEvent, ...]], None],
        changed: Callable[[int, tuple[AgentEvent, ...]], None] = lambda _node, _events: None,
    ) -> None:
        self._site = site
        self._pool = pool
        self._stopped = stopped
        self._changed = changed

    def handler(self) -> Callable[[str, bytes], Coroutine[Any, Any, dict[str, Any]]]:
        """Return the handler of calls, which answers as long as this object exists.

        Dask keeps the handlers that it has called in a cache, and with them what they hold.
        """
        # A strong reference kept the pool of a failed job in Dask's cache, with the descriptors of
        # its idle agents.
        service = weakref.ref(self)

        async def serve(what: str, given: bytes) -> dict[str, Any]:
            there = service()
            return {} if there is None else await there.serve(what, given)

        return serve

    async def serve(self, what: str, given: bytes) -> dict[str, Any]:
        """Call the named method, and return its result."""
        call = getattr(self, f"_{what}")
        result = await called_aside(_answer, call, given)
        return {"result": to_serialize(result)}

    def _look(self, output: ProbeFile | None) -> dict[str, Any]:
        """Return the worker's folder ids, the keys it lacks, and whether it sees `output`."""
        folder, store = self._site.folder, self._site.store
        return {
            "folder": "" if folder is None else folder.id,
            "store": "" if store is None else store.id,
            "lacks": self._site.lacks(),
            "sees_output": output is None or output.is_seen(),
        }

    def _prepare(self, threads: int) -> None:
        """Start what agents are forked from."""
        self._pool.prepare(threads)

    def _withdraw(self, slot: int, lease_id: int, rest: bool) -> bool:  # noqa: FBT001 - a message
        """Withdraw a lease unless it has begun; with `rest`, then what of it has not."""
        return self._pool.withdraw(slot, lease_id, rest=rest)

    def _kill(self, slot: int) -> None:
        """End the agent of a slot that is there no more, and free what it holds of a GPU."""
        self._pool.kill(slot)

    def _preprocess(self, host: StageHost, assigned: Assigned) -> Preprocessed:
        """Run `preprocess` for a slot of another node."""
        try:
            made = self._pool.hosted.run(host, assigned)
        finally:
            if events := self._pool.hosted.taken_events():
                self._changed(host.node, events)
        # Dask sends arrays without a copy.
        return made._replace(value=None if made.value is None else np.frombuffer(made.value, "u1"))

    def _stop(self) -> None:
        """Let the agents shut down, however long that takes; their events are reported later."""
        call_aside(self._shut_down)

    def _shut_down(self) -> None:
        """Report the end of the agents, whatever becomes of it: the driver waits for it."""
        events: tuple[AgentEvent, ...] = ()
        try:
            events = self._pool.stop()
        finally:
            self._stopped(events)

    def _end(self) -> None:
        """Kill the agents, so that they write no more."""
        self._pool.close()

    def _folder(self, method: str, *given: Any) -> Any:
        """Call a method of this node's folder."""
        return getattr(self._site.store, method)(*given)


def _answer(call: Any, given: bytes) -> Any:
    try:
        return call(*pickle.loads(given))
    except Exception as error:  # noqa: BLE001 - it is raised in the driver
        return error


class NodeCalls:
    """Calls the services of workers, from any thread but Dask's own.

    Once the event `until` is set, all calls raise `Unreachable`.
    """

    def __init__(self, client: Client, job_id: str, until: threading.Event | None = None) -> None:
        self._until = until
        self._client = client
        self._name = plugin_name(job_id)

    def __call__(self, worker: str, what: str, *given: Any, within_s: float = CALL_S) -> Any:
        """Call a worker's service, and return the result.

        Raise `Unreachable` if the worker does not answer or is gone, or if `until` is set.
        """
        if self._until is not None and self._until.is_set():
            raise Unreachable(worker)
        message = self._message(what, given)
        try:
            answers = self._client.sync(
                self._client.scheduler.broadcast,
                msg=message,
                workers=[worker],
                on_error="return_pickle",
                callback_timeout=within_s,
            )
            result = answers[worker]["result"]
        except Exception as error:  # whatever Dask raises on the way
            raise Unreachable(worker) from error
        if isinstance(result, Exception):
            raise result
        return result

    def ask(
        self,
        workers: Collection[str],
        what: str,
        *given: Any,
        answered: Callable[[str, Any], None] = lambda _worker, _result: None,
    ) -> None:
        """Call the services of some workers, without waiting for their answers.

        Dask's loop calls `answered` for each worker, with the result or an error.
        """

        async def call() -> None:
            message = self._message(what, given)
            try:
                answers = await self._client.scheduler.broadcast(
                    msg=message, workers=list(workers), on_error="return_pickle"
                )
            except Exception as error:  # noqa: BLE001 - whatever Dask raises on the way
                answers = dict.fromkeys(workers, error)
            for worker in workers:
                answer = answers.get(worker)
                answered(worker, answer["result"] if isinstance(answer, dict) else answer)

        self._client.loop.add_callback(call)

    def _message(self, what: str, given: tuple[Any, ...]) -> dict[str, Any]:
        return {"op": self._name, "what": what, "given": to_serialize(pickle.dumps(given))}
