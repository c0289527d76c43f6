"""The scheduler plugin: a job's presence on a cluster, from its registration to its end.

Each job has one. It installs the job's worker plugin on the workers and reports lost workers to
the driver. It cancels their leases before Dask runs them again. When the job is over or its driver
has vanished, it removes everything.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from distributed import SchedulerPlugin
from distributed.protocol.pickle import dumps

from daskprs._cluster.governors import governors_of, leave_governor
from daskprs._cluster.job_figures import FIGURES, show_figures
from daskprs._cluster.lost_cluster import lost_cluster_ignored
from daskprs._cluster.topics import forget
from daskprs._cluster.worker_events import (
    Heartbeat,
    WorkerLeaving,
    WorkerLost,
    WorkerRefused,
    WorkersFound,
    packed,
    unpacked,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable
    from contextlib import ExitStack

    from distributed import Client, Scheduler
    from distributed.scheduler import TaskState

    from daskprs._core.rate_limit import RateLimit

REMOVE_WITHIN_S = 10.0
"""Seconds that the end of a job waits for workers to confirm the end of their agents."""
LEAVES_WITHIN_S = REMOVE_WITHIN_S + 5.0
"""Seconds that a driver waits for the scheduler to end a job. One that has stopped does it once it
goes on, or once it sees that the client has gone."""
ASK_AGAIN_S = 5.0
"""Seconds between requests to a worker that hangs, as long as the scheduler has it."""
FIRST_PAUSE_S = 0.1
"""Seconds before the second request to remove a plugin; twice as long before each further one."""

_going_on: set[asyncio.Task[Any]] = set()
"""Tasks of the scheduler's loop, which itself holds only weak references to them."""


class JobPlugin(SchedulerPlugin):  # type: ignore[misc] # distributed is not typed
    """Looks after one job on the scheduler.

    Its name is that of the worker plugin, too, which comes pickled, and the first part of all lease
    keys. The first of its topics carries the news of its workers. `client` is the id of the
    driver's client. The governor of the job keeps the `rate_limit`; None: there are no limits.
    """

    idempotent = True

    def __init__(
        self,
        name: str,
        topics: tuple[str, ...],
        client: str,
        worker_plugin: bytes,
        rate_limit: RateLimit | None = None,
    ) -> None:
        self.name = name
        self.topics = topics
        self._topic = topics[0]
        self._client = client
        self._worker_plugin = worker_plugin
        self._rate_limit = rate_limit
        self._leaving: set[str] = set()
        self._lost: dict[str, list[Any]] = {}
        """The lease keys of each worker that is being removed."""
        self._heard: set[str] = set()
        """The workers that have sent a heartbeat."""

    async def start(self, scheduler: Scheduler) -> None:
        """Install the worker plugin on all workers; `add_worker` does so on later ones.

        This does not wait for the workers: a hanging worker must not hold up a job, and each
        worker reports when it has the plugin. The plugin is not among those that Dask gives to
        each new worker: one that cannot load it, since it has no daskprs, would end.
        """
        self._scheduler = scheduler
        if self._rate_limit is not None:
            governors_of(scheduler).join(self.name, self._rate_limit)
        # The client's own subscription arrives later; the first events of workers would be lost.
        for topic in self.topics:
            scheduler.subscribe_topic(topic, self._client)
        self._tell(WorkersFound(tuple(scheduler.workers)))
        for worker in list(scheduler.workers):
            _go_on(self._set_up(worker))

    def log_event(self, topic: str, msg: Any) -> None:
        """Note the leases of a removed worker, before Dask gives its tasks to others."""
        if topic == FIGURES:
            show_figures(msg)
        elif topic == self._topic:
            news = unpacked(msg)
            if isinstance(news, WorkerLeaving):
                self._leaving.add(news.worker)
            elif isinstance(news, Heartbeat):
                self._heard.add(news.worker)
        elif topic == "all" and isinstance(msg, dict) and msg.get("action") == "remove-worker":
            worker = msg["worker"]
            # Dask logs this event before it gives the tasks to other workers; it calls
            # `remove_worker` only afterwards. And only the event says whether the worker was told
            # to go.
            keys = (*msg["processing-tasks"], *msg["lost-computed-tasks"])
            lost = self._lost[worker] = [key for key in keys if self._is_ours(key)]
            expected = msg["expected"] or worker in self._leaving
            self._leaving.discard(worker)
            self._heard.discard(worker)
            self._tell(WorkerLost(worker, expected, frozenset(key[1] for key in lost)))

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Install the worker plugin, and let the worker have tasks that prefer ones that have gone.

        Where no worker is left for a moment, Dask would keep these tasks for ever.
        """
        _go_on(self._set_up(worker))
        for task in scheduler.unrunnable:
            if task.loose_restrictions and not scheduler.valid_workers(task):
                task.worker_restrictions = None

    def remove_worker(self, scheduler: Scheduler, worker: str, **_: Any) -> None:
        """Cancel the leases of a removed worker: Dask would run them again by itself.

        Tasks that rather ran there may run anywhere: where no other worker can run a task at
        present, Dask would wait for that worker.
        """
        if self._rate_limit is not None:
            governors_of(scheduler).lose_worker(self.name, worker)
        keys = self._lost.pop(worker, [])
        wanted = [key for key in keys if key in scheduler.tasks and scheduler.tasks[key].who_wants]
        scheduler.stimulus_cancel(
            wanted,
            client=self._client,
            force=True,
            reason="lost-worker",
            msg=f"The worker {worker} has gone.",
        )
        client = scheduler.clients.get(self._client)
        for task in _needed(client.wants_what if client is not None else ()):
            if task.loose_restrictions and task.worker_restrictions == {worker}:
                task.worker_restrictions = None

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """Take the job off the cluster when its driver has vanished."""
        if client == self._client:
            _go_on(end_job(self.name, self.topics, dask_scheduler=scheduler))

    def _is_ours(self, key: Any) -> bool:
        """Say whether a key is one of our leases; foreign keys may be strings or numbers."""
        return isinstance(key, tuple) and key[:1] == (self.name,)

    async def _set_up(self, worker: str) -> None:
        response = await self._answer_of(worker)
        if isinstance(response, dict) and response.get("status") == "error":
            why = response.get("exception_text") or response.get("text") or "it does not say why"
            self._tell(WorkerRefused(worker, str(why)))
        elif isinstance(response, Exception):
            self._tell(WorkerRefused(worker, str(response)))
        if self._scheduler.plugins.get(self.name) is not self:  # the job has ended meanwhile
            await _removed(self._scheduler, worker, self.name)

    async def _answer_of(self, worker: str) -> Any:
        """Ask a worker to add the plugin, and return its answer; None if it has gone.

        A worker whose loop is held up, such as by a task that holds the GIL, lets the connection
        run out of time. It is asked again until it answers: without the plugin it would have no
        slots for the rest of the job. But if the connection was cut after it had the request, its
        heartbeats show that it has the plugin. A second one would end the agents of the first.
        """
        state = self._scheduler.workers.get(worker)
        while state is not None and self._scheduler.workers.get(worker) is state:
            responses = await self._scheduler.broadcast(
                msg={"op": "plugin-add", "plugin": self._worker_plugin, "name": self.name},
                workers=[worker],
                on_error="return",
            )
            response = responses.get(worker)
            is_over = self._scheduler.plugins.get(self.name) is not self
            if not isinstance(response, OSError) or worker in self._heard or is_over:
                return None if isinstance(response, OSError) else response
            await asyncio.sleep(ASK_AGAIN_S)
        return None

    def _tell(self, news: WorkersFound | WorkerLost | WorkerRefused) -> None:
        self._scheduler.log_event(self._topic, packed(news))


def _needed(wanted: Iterable[TaskState]) -> set[TaskState]:
    """Return tasks, and those that they depend on."""
    needed: set[TaskState] = set()
    found = set(wanted)
    while found:
        needed |= found
        found = {one for task in found for one in task.dependencies} - needed
    return needed


def join(
    client: Client,
    name: str,
    topic: str,
    heard: Callable[[tuple[float, Any]], object],
    worker_plugin: object,
    closing: ExitStack,
    hanging: Callable[[], Collection[str]] = tuple,
) -> None:
    """Have a plugin on all workers until `closing` is closed, later ones included.

    Dask's loop calls `heard` with what the workers report on the topic. At the end, nothing waits
    for the workers that are `hanging` by then.
    """
    connection = client.scheduler_comm

    def end() -> None:
        # With another connection, to ask takes as long as Dask tries to connect.
        if client.scheduler_comm is connection:
            with lost_cluster_ignored(f"to take {name} off the cluster"):
                leave(client, name, (topic,), hanging())

    client.subscribe_topic(topic, heard)
    closing.callback(forget, client, topic)
    closing.callback(end)
    client.register_plugin(JobPlugin(name, (topic,), client.id, dumps(worker_plugin)))


def leave(
    client: Client, name: str, topics: Collection[str], hanging: Collection[str] = ()
) -> None:
    """Have the scheduler take a job off the cluster; the parameters are those of `end_job`.

    Raise `TimeoutError` if the scheduler has not done it within `LEAVES_WITHIN_S`.
    """
    client.run_on_scheduler(end_job, name, topics, tuple(hanging), callback_timeout=LEAVES_WITHIN_S)


async def end_job(
    name: str, topics: Collection[str], hanging: Collection[str] = (), *, dask_scheduler: Scheduler
) -> None:
    """Take a job off the cluster: its agents, its plugins, its topics.

    The driver runs this on the scheduler, which Dask passes. It returns when all agents have ended,
    or after `REMOVE_WITHIN_S`. It does not wait for workers that are `hanging`, which are asked
    again and again.
    """
    known = dask_scheduler.plugins.pop(name, None) is not None
    leave_governor(dask_scheduler, name)
    removals = {
        worker: _go_on(_removed(dask_scheduler, worker, name))
        for worker in (list(dask_scheduler.workers) if known else ())
    }
    awaited = [task for worker, task in removals.items() if worker not in hanging]
    if awaited:
        await asyncio.wait(awaited, timeout=REMOVE_WITHIN_S)
    # Dask keeps the last events of a topic for ever, and offers no way to remove a topic.
    with suppress(AttributeError):
        plugins = [one for one in dask_scheduler.plugins.values() if isinstance(one, JobPlugin)]
        in_use = {one for plugin in plugins for one in (*plugin.topics, FIGURES)}
        for topic in {*topics, FIGURES} - in_use:
            dask_scheduler._broker._topics.pop(topic, None)  # noqa: SLF001


async def _removed(scheduler: Scheduler, worker: str, name: str) -> None:
    """Remove the plugin from a worker; ask again until the worker answers."""
    pause_s = FIRST_PAUSE_S
    while worker in scheduler.workers:
        message = {"op": "plugin-remove", "name": name}
        answer = await scheduler.broadcast(msg=message, workers=[worker], on_error="ignore")
        if answer.get(worker):
            return
        # One that has died in this moment is about to be removed.
        await asyncio.sleep(pause_s)
        pause_s = min(ASK_AGAIN_S, 2 * pause_s)


def _go_on(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    task = asyncio.ensure_future(work)
    _going_on.add(task)
    task.add_done_callback(_going_on.discard)
    return task
