"""The worker plugin: the agents of one job on one Dask worker, from registration to teardown."""

from __future__ import annotations

import asyncio
import pickle
import random
import secrets
import tempfile
import time
import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from distributed import Status, WorkerPlugin
from distributed.comm import get_address_host
from tornado.ioloop import PeriodicCallback

from daskprs._agent.node.environment import device_uuids, usable_cores, visible_devices
from daskprs._agent.node.monitor import NodeMonitor, pauses_s
from daskprs._agent.node.site import WorkerSite
from daskprs._agent.supervision.permit_desk import LOOK_EVERY_S
from daskprs._agent.supervision.pool import AgentPool
from daskprs._agent.supervision.slot import HOST
from daskprs._cluster.aside import call_aside, called_aside
from daskprs._cluster.governors import ask_governor
from daskprs._cluster.remote.node_service import NodeService
from daskprs._cluster.stage_calls import StageCalls
from daskprs._cluster.staged_in_use import PARTITIONS, StagedInUse
from daskprs._cluster.thread_pool import AGAIN_S, drop_threads_that_never_began
from daskprs._cluster.topics import logs_topic, plugin_name
from daskprs._cluster.uploads import with_uploads
from daskprs._cluster.worker_events import (
    AgentsStopped,
    Heartbeat,
    NodeMeasured,
    PermitsFailed,
    StagesChanged,
    WorkerLeaving,
    WorkerRefused,
    packed,
)

if TYPE_CHECKING:
    from distributed import Worker

    from daskprs._agent.node.site import DriverInfo
    from daskprs._agent.protocol.messages import JobSpec
    from daskprs._cluster.worker_events import WorkerEvent
    from daskprs._core.lease import AgentEvent
    from daskprs._core.usage import NodeUsage

TELL_EVERY_MS = 500
"""Milliseconds between a worker's heartbeats."""
WAIT_S = 1.0
"""Seconds that a lease waits for a thread before it may move to another worker."""
QUEUED = ("ready", "constrained")
"""States of tasks that lack nothing but a thread, or a resource and a thread."""
GPU = "GPU"
"""The resource by which clusters declare devices."""


class AgentsPlugin(WorkerPlugin):  # type: ignore[misc] # distributed is not typed
    """Owns the agents of one job on one worker.

    Its name is the first part of all lease keys. The worker reports its events on the topic, and
    recognizes the driver's process and job folder by `origin`. The job has the driver's paths.
    """

    idempotent = True

    def __init__(self, name: str, topic: str, job: JobSpec, origin: DriverInfo) -> None:
        self.name = name
        self._topic = topic
        self._job = job
        self._origin = origin
        self._is_set_up = False
        self._is_removed = False

    async def setup(self, worker: Worker) -> None:
        """Make the pool, and send the first heartbeat; the first leases start the agents.

        A failure is reported to the driver: on a worker that joins later, Dask only logs it.
        """
        try:
            await self._set_up(worker)
        except Exception as error:  # raised again: here it is only passed on to the driver
            why = f"{type(error).__name__}: {error}"
            worker.log_event(self._topic, packed(WorkerRefused(worker.address, why)))
            raise

    async def _set_up(self, worker: Worker) -> None:
        self._worker = worker
        self._queued_s: dict[tuple[str, int, int], float] = {}
        """For each lease not begun, by key: the time since which it lacks only a thread."""
        self._lacking_s: dict[tuple[str, int, int], float] = {}
        """For those of them that lack a resource: the time since which they do."""
        await called_aside(self._look_around)
        service = plugin_name(self._job.job_id)
        ask = None if self._job.stages is None else StageCalls(worker, service)
        self.pool = AgentPool(self._site.job, ask=ask)
        self.partitions = StagedInUse(Path(worker.local_directory, PARTITIONS))
        self._service = NodeService(self._site, self.pool, self._stopped, self._stages_changed)
        self._serve = self._service.handler()
        worker.handlers[service] = self._serve
        self._life = secrets.token_hex(8)
        ends_in_s = worker_ends_in_s(worker)
        self._ends_s = None if ends_in_s is None else time.monotonic() + ends_in_s
        self._gpus = float(worker.state.total_resources.get(GPU, 0.0))
        if self._is_removed:
            # The job has ended, or adds a new plugin, since the scheduler lost the answer of this
            # one. Heartbeats from here would announce slots that nothing serves, and never end.
            await self._close(worker)
            return
        self._measuring = asyncio.create_task(self._measure())
        self._governing = asyncio.create_task(self._govern_or_tell())
        self._telling = PeriodicCallback(self._tell, TELL_EVERY_MS)
        self._telling.start()
        self._is_set_up = True
        self._tell()

    def _look_around(self) -> None:
        """Look at the folders and the devices of this node, which may take seconds.

        What dead workers have left in the scratch folder is removed, too.
        """
        folder = Path(self._worker.local_directory)
        self._site = WorkerSite(with_uploads(self._job, folder), self._origin, folder.parent)
        self._devices = visible_devices()
        self._uuids = device_uuids(self._devices)

    async def teardown(self, worker: Worker) -> None:
        """Kill the agents: a lease that waits for an agent would hold up the worker's end."""
        self._is_removed = True
        if not self._is_set_up:
            return  # `setup` waits, and closes what it has made
        if worker.status not in (Status.running, Status.paused):
            worker.log_event(self._topic, packed(WorkerLeaving(worker.address)))
        self._telling.stop()
        self._measuring.cancel()
        self._governing.cancel()
        await self._close(worker)

    async def _close(self, worker: Worker) -> None:
        # Agents may take seconds to end, and a disk to remove files, and the worker's loop has to
        # send heartbeats meanwhile.
        await called_aside(self.pool.close)
        await called_aside(self.partitions.close)
        service = plugin_name(self._job.job_id)
        # After a reconnect, the plugin of the next session may have its own handler there by now.
        if worker.handlers.get(service) is self._serve:
            del worker.handlers[service]
        folder = self._site.folder
        if folder is not None:
            # The driver fetches the logs of far nodes, and cannot ask a worker that has left.
            told = pickle.dumps((folder.id, await called_aside(folder.last_news)))
            worker.log_event(logs_topic(self._job.job_id), told)
        await called_aside(self._site.close)

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:  # noqa: ARG002
        """Kill the agent of a cancelled lease, whose thread does not notice the cancellation."""
        # The pool may have had no thread for the lease. Dask counts the thread that never began,
        # and a pool with only such threads runs nothing afterwards.
        if finish == "error" and isinstance(key, tuple) and key[:1] == (self.name,):
            self._drop_threads()
        match key:
            case (self.name, int(lease_id), int(slot)):
                if finish in QUEUED:
                    self._queued_s.setdefault(key, time.monotonic())
                else:
                    self._queued_s.pop(key, None)
                    self._lacking_s.pop(key, None)
                if start in ("executing", "long-running") and finish in ("released", "forgotten"):
                    call_aside(self.pool.kill, slot, lease_id)

    def _drop_threads(self) -> None:
        if drop_threads_that_never_began(self._worker.executors["default"]) is False:
            self._worker.loop.call_later(AGAIN_S, self._drop_threads)

    def _is_idle(self) -> bool:
        """Say whether a new task would begin at once."""
        state = self._worker.state
        return bool(state.running and len(state.executing) < state.nthreads)

    def _waiting(self) -> tuple[int, ...]:
        """Return the leases that have waited for a thread, not for a resource, for too long."""
        state, now_s = self._worker.state, time.monotonic()
        for key in self._queued_s:
            task = state.tasks.get(key)
            needed = {} if task is None else task.resource_restrictions or {}
            # The seconds count from the moment at which only a thread is lacking: a lease that
            # waits for a GPU is not moved.
            if any(state.available_resources[name] < amount for name, amount in needed.items()):
                self._queued_s[key] = now_s
                self._lacking_s.setdefault(key, now_s)
            else:
                self._lacking_s.pop(key, None)
        return tuple(
            id_ for (_, id_, _), since_s in self._queued_s.items() if now_s - since_s >= WAIT_S
        )

    def _stopped(self, events: tuple[AgentEvent, ...]) -> None:
        """Report that the agents have shut down; called by a thread of the node's service."""
        self._report(AgentsStopped(self._worker.address, events))

    def _stages_changed(self, node: int, events: tuple[AgentEvent, ...]) -> None:
        """Report on processes for other nodes; called by a thread of the node's service."""
        self._report(StagesChanged(node, HOST, events))

    def _report(self, news: WorkerEvent) -> None:
        worker = self._worker
        worker.loop.add_callback(worker.log_event, self._topic, packed(news))

    async def _measure(self) -> None:
        """Report now and then what is used of the machine."""
        worker, interval_s = self._worker, self._job.resource_interval_s
        places = (self._site.job.job_dir, worker.local_directory, tempfile.gettempdir())
        monitor = NodeMonitor(self.pool.usage, map(Path, places), self._devices)
        for pause_s in pauses_s(interval_s):
            await asyncio.sleep(pause_s)
            try:
                usage: NodeUsage | str = await called_aside(monitor.measure)
            except Exception as error:  # noqa: BLE001 - the job does without the figures of a node
                usage = f"{type(error).__name__}: {error}"
            worker.log_event(self._topic, packed(NodeMeasured(worker.address, usage)))
            if isinstance(usage, str):
                return

    async def _govern_or_tell(self) -> None:
        """Get the agents their permits; an error of ours ends the job, whose calls would wait."""
        try:
            await self._govern()
        except Exception:  # noqa: BLE001 - that of the scheduler, too, which answers with it
            failed = PermitsFailed(self._worker.address, traceback.format_exc())
            self._worker.log_event(self._topic, packed(failed))

    async def _govern(self) -> None:
        """Get the agents their permits, as long as the job lasts."""
        desk, has_told = self.pool.permits, False
        while desk is not None:
            reports = desk.look()
            after_s = LOOK_EVERY_S
            if reports or has_told:
                try:
                    grants, wanted_s = await ask_governor(self._worker, self.name, reports)
                except OSError:  # the connection was cut: what an answer granted goes back
                    after_s = AGAIN_S
                else:
                    has_told = bool(reports)
                    desk.apply(grants)
                    after_s = max(after_s, wanted_s)
            # Not at the same time as others: who comes first gets what there is.
            await asyncio.sleep(after_s * random.uniform(0.8, 1.2))  # noqa: S311

    def _tell(self) -> None:
        worker = self._worker
        if worker.batched_stream.closed():
            # The scheduler has removed this worker, and its leases run elsewhere by now.
            self._telling.stop()
            self._measuring.cancel()
            self._governing.cancel()
            call_aside(self.pool.close)
            return
        if self.pool.is_unwatched():
            call_aside(self.pool.watch)
        now_s = time.monotonic()
        told = Heartbeat(
            worker=worker.address,
            life=self._life,
            host=get_address_host(worker.address),
            threads=worker.state.nthreads,
            cores=usable_cores(),
            gpus=self._gpus,
            devices=self._devices,
            states=self.pool.states(),
            idle=self._is_idle(),
            waiting=self._waiting(),
            lacking=sum(now_s - since_s >= WAIT_S for since_s in self._lacking_s.values()),
            ends_in_s=None if self._ends_s is None else self._ends_s - now_s,
            uuids=self._uuids,
        )
        worker.log_event(self._topic, packed(told))


def worker_ends_in_s(worker: Worker) -> float | None:
    """Return the seconds until a worker closes by itself, by ``--lifetime``; None: it does not.

    Called by the worker's loop. Dask keeps no time at which the life began, only a timer.
    """
    if not worker.lifetime:
        return None
    loop = worker.loop.asyncio_loop
    for handle in getattr(loop, "_scheduled", ()):  # other loops than asyncio's have none
        for one in getattr(handle, "_args", None) or ():
            if isinstance(one, partial) and one.func == worker.close_gracefully:
                return float(handle.when() - loop.time())
    # The process is no younger than its worker: it may only be taken to end too early.
    return float(worker.lifetime - (time.time() - psutil.Process().create_time()))
