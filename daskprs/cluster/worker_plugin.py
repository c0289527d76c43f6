"""The worker plugin: the agents of one job on one Dask worker, from registration to teardown."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distributed import WorkerPlugin
from tornado.ioloop import PeriodicCallback

from daskprs.agent.pool import AgentPool
from daskprs.agent.site import Site
from daskprs.cluster.lease import logs_topic, plugin_name, states_topic
from daskprs.cluster.node_service import NodeService

if TYPE_CHECKING:
    from distributed import Worker

    from daskprs.agent.messages import JobSpec
    from daskprs.agent.site import Origin
    from daskprs.core.limits import Limits

STATES_EVERY_MS = 500
"""How often a worker tells what its slots are doing; only progress reads it."""


class AgentsPlugin(WorkerPlugin):  # type: ignore[misc] # distributed is not typed
    """Owns the agents of one job on one worker."""

    idempotent = True

    def __init__(self, job: JobSpec, limits: Limits, origin: Origin) -> None:
        self.name = plugin_name(job.job_id)
        self._job = job
        self._origin = origin
        self._limits = limits

    def setup(self, worker: Worker) -> None:
        """Make the pool; agents are started by the first leases."""
        self._site = Site(self._job, self._origin, Path(worker.local_directory).parent)
        self.pool = AgentPool(self._site.job, self._limits)
        self._worker = worker
        worker.handlers[self.name] = NodeService(self._site, self.pool).serve
        self._telling = PeriodicCallback(self._tell, STATES_EVERY_MS)
        self._telling.start()

    def teardown(self, worker: Worker) -> None:
        """Kill what is left: a lease that waits on an agent would hold up the worker's end."""
        self._telling.stop()
        self.pool.close()
        worker.handlers.pop(self.name, None)
        folder = self._site.folder
        if folder is not None:
            told = pickle.dumps((folder.id, folder.last_news()))
            worker.log_event(logs_topic(self._job.job_id), told)
        self._site.close()

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:  # noqa: ARG002
        """Kill the agent of a lease that was cancelled: its thread sees nothing of it."""
        if start in ("executing", "long-running") and finish in ("released", "forgotten"):
            match key:
                case (self.name, _, int(slot)):
                    self.pool.kill(slot)

    def _tell(self) -> None:
        # Dask's messages turn named tuples into plain ones, so that they travel as a pickle.
        told = self._worker.address, pickle.dumps(self.pool.states())
        self._worker.log_event(states_topic(self._job.job_id), told)
