"""The scheduler plugin: a job's presence on a cluster, from its registration to its end.

One for each job. It brings the job's worker plugin to the workers, tells the driver of those that
are lost, takes their leases back before Dask runs them again, and takes everything away again when
the job is over or its driver has vanished.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from distributed import SchedulerPlugin

from daskprs.cluster.worker_events import (
    WorkerLeaving,
    WorkerLost,
    WorkerRefused,
    WorkersFound,
    packed,
    unpacked,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine

    from distributed import Scheduler

REMOVE_WITHIN_S = 10.0
"""So long the end of a job waits for workers to say that they have ended their agents."""
ASK_AGAIN_S = 5.0
"""A worker that hangs is asked again so often, as long as the scheduler has it."""

_going_on: set[asyncio.Task[Any]] = set()
"""Tasks of the scheduler's loop; it holds only weak references to them itself."""


class JobPlugin(SchedulerPlugin):  # type: ignore[misc] # distributed is not typed
    """Looks after one job on the scheduler.

    Parameters
    ----------
    name
        Of this plugin, of the worker plugin, and the first part of the keys of all leases.
    topics
        Where the job hears of its workers, and all others that it has.
    client
        The id of the driver's client.
    worker_plugin
        Pickled.

    """

    idempotent = True

    def __init__(
        self, name: str, topics: tuple[str, ...], client: str, worker_plugin: bytes
    ) -> None:
        self.name = name
        self.topics = topics
        self._topic = topics[0]
        self._client = client
        self._worker_plugin = worker_plugin
        self._leaving: set[str] = set()
        self._lost: dict[str, list[Any]] = {}
        """Leases of workers that are being removed just now."""

    async def start(self, scheduler: Scheduler) -> None:
        """Bring the worker plugin to all workers, those that come later included.

        Nobody is waited for: a worker that hangs holds up no job, and one that has it says so.
        """
        self._scheduler = scheduler
        # The client's own word comes a little later, and what workers tell first would be lost.
        for topic in self.topics:
            scheduler.subscribe_topic(topic, self._client)
        scheduler.worker_plugins[self.name] = self._worker_plugin
        self._tell(WorkersFound(tuple(scheduler.workers)))
        for worker in list(scheduler.workers):
            _go_on(self._set_up(worker))

    def log_event(self, topic: str, msg: Any) -> None:
        """Hear of a worker that is removed, before Dask gives its tasks to others."""
        if topic == self._topic:
            news = unpacked(msg)
            if isinstance(news, WorkerLeaving):
                self._leaving.add(news.worker)
        elif topic == "all" and isinstance(msg, dict) and msg.get("action") == "remove-worker":
            worker = msg["worker"]
            keys = (*msg["processing-tasks"], *msg["lost-computed-tasks"])
            self._lost[worker] = [key for key in keys if self._is_ours(key)]
            expected = msg["expected"] or worker in self._leaving
            self._leaving.discard(worker)
            self._tell(WorkerLost(worker, expected))

    def remove_worker(self, scheduler: Scheduler, worker: str, **_: Any) -> None:
        """Take back what it had: Dask would run it again by itself."""
        keys = self._lost.pop(worker, [])
        wanted = [key for key in keys if key in scheduler.tasks and scheduler.tasks[key].who_wants]
        scheduler.stimulus_cancel(
            wanted,
            client=self._client,
            force=True,
            reason="lost-worker",
            msg=f"The worker {worker} has gone.",
        )

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """End what the job has on the cluster when its driver has vanished."""
        if client == self._client:
            _go_on(end_job(self.name, self.topics, dask_scheduler=scheduler))

    def _is_ours(self, key: Any) -> bool:
        """Say whether a key is that of a lease; those of others may be text or numbers."""
        return isinstance(key, tuple) and key[:1] == (self.name,)

    async def _set_up(self, worker: str) -> None:
        responses = await self._scheduler.broadcast(
            msg={"op": "plugin-add", "plugin": self._worker_plugin, "name": self.name},
            workers=[worker],
            on_error="ignore",  # it has gone: the scheduler will say so
        )
        response = responses.get(worker, {})
        if isinstance(response, dict) and response.get("status") == "error":
            why = response.get("exception_text") or response.get("text") or "it does not say why"
            self._tell(WorkerRefused(worker, str(why)))

    def _tell(self, news: WorkersFound | WorkerLost | WorkerRefused) -> None:
        self._scheduler.log_event(self._topic, packed(news))


async def end_job(
    name: str, topics: Collection[str], hanging: Collection[str] = (), *, dask_scheduler: Scheduler
) -> None:
    """Take a job off the cluster: its agents, its plugins, its topics.

    Called for the driver on the scheduler. It comes back when the agents have been ended, except
    those of workers that hang; these are asked again and again.

    Parameters
    ----------
    name, topics
        As for `JobPlugin`.
    hanging
        Workers that need not be waited for.
    dask_scheduler
        Given by Dask.

    """
    dask_scheduler.plugins.pop(name, None)
    known = dask_scheduler.worker_plugins.pop(name, None) is not None
    removals = {
        worker: _go_on(_removed(dask_scheduler, worker, name))
        for worker in (list(dask_scheduler.workers) if known else ())
    }
    awaited = [task for worker, task in removals.items() if worker not in hanging]
    if awaited:
        await asyncio.wait(awaited, timeout=REMOVE_WITHIN_S)
    # Dask keeps the last events of a topic for ever, and has no way of its own to forget one.
    with suppress(AttributeError):
        plugins = [one for one in dask_scheduler.plugins.values() if isinstance(one, JobPlugin)]
        in_use = {topic for plugin in plugins for topic in plugin.topics}
        for topic in set(topics) - in_use:
            dask_scheduler._broker._topics.pop(topic, None)  # noqa: SLF001


async def _removed(scheduler: Scheduler, worker: str, name: str) -> None:
    """Remove the plugin from a worker, however long it takes until that answers."""
    while worker in scheduler.workers:
        message = {"op": "plugin-remove", "name": name}
        answer = await scheduler.broadcast(msg=message, workers=[worker], on_error="ignore")
        if answer.get(worker):
            return
        await asyncio.sleep(ASK_AGAIN_S)


def _go_on(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    task = asyncio.ensure_future(work)
    _going_on.add(task)
    task.add_done_callback(_going_on.discard)
    return task
