"""What a driver has on a cluster: its plugins, the news of its workers, its leases."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from distributed.protocol.pickle import dumps

from daskprs.cluster.lease import lease_key, logs_topic, plugin_name, run_lease
from daskprs.cluster.scaling_demand import ScalingDemand
from daskprs.cluster.scheduler_plugin import JobPlugin, end_job
from daskprs.cluster.topics import forget
from daskprs.cluster.worker_events import unpacked
from daskprs.cluster.worker_plugin import GPU, AgentsPlugin
from daskprs.errors import DaskprsError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from distributed import Client, Future

    from daskprs.agent.node.site import DriverInfo
    from daskprs.agent.protocol.messages import JobSpec
    from daskprs.cluster.worker_events import WorkerEvent
    from daskprs.core.lease import Lease
    from daskprs.core.limits import Limits

LIVING = ("running", "connecting")
"""What a client says of itself that will have an answer, by and by."""
AHEAD = 1
"""Priority of a lease over the tasks of others (0), since a lease has the thread for milliseconds.
A lease that asks for a device keeps the device, so it waits its turn."""
GONE = "the cluster has gone: its scheduler cannot be reached, or the client was closed."


class Session:
    """A job on a cluster, as long as the client's connection to its scheduler lasts.

    When that is lost the scheduler ends the job's agents, and the client gives up all its futures.
    Once it is there again, another session goes on.

    Parameters
    ----------
    client
        Of the cluster.
    job, limits
        For the agents.
    origin
        How a worker finds out how far away the driver is.
    heard
        Called with all that is told of workers, by Dask's loop.
    number
        Another one for each session of a job: what is left of one must not be taken for the next.

    """

    def __init__(
        self,
        client: Client,
        job: JobSpec,
        limits: Limits,
        origin: DriverInfo,
        heard: Callable[[WorkerEvent], None],
        number: int = 0,
    ) -> None:
        self._client = client
        self._job = job
        self._limits = limits
        self._origin = origin
        self._heard = heard
        self.name = plugin_name(job.job_id) + (f"-{number}" if number else "")
        self._topic = f"{self.name}-workers"
        self._topics = (self._topic, logs_topic(job.job_id))
        self._connection = client.scheduler_comm
        self.scaling_demand = ScalingDemand(client, self.name)
        """For workers of an adaptive cluster."""

    @property
    def lost(self) -> bool:
        """Whether the connection was lost that the session began with.

        Raises
        ------
        DaskprsError
            When there will be no other: the client was closed, or has given up.

        """
        if self._client.status not in LIVING:
            raise DaskprsError(GONE)
        return self._client.scheduler_comm is not self._connection

    @property
    def connected(self) -> bool:
        """Whether the client has a connection, this one or a new one."""
        return bool(self._client.status == "running")

    def open(self) -> None:
        """Bring the job to the cluster; workers tell of themselves once they are ready."""
        self._client.subscribe_topic(self._topic, partial(_hear, self._heard))
        agents = AgentsPlugin(self.name, self._topic, self._job, self._limits, self._origin)
        self._client.register_plugin(
            JobPlugin(self.name, self._topics, self._client.id, dumps(agents))
        )

    def close(self, hanging: Collection[str] = ()) -> None:
        """Take the job off the cluster, and wait for its agents to end, except where it hangs."""
        try:
            self._client.run_on_scheduler(end_job, self.name, self._topics, tuple(hanging))
        finally:
            self.forget()

    def forget(self) -> None:
        """Hear no more of workers, and wish for none."""
        self.scaling_demand.close()
        forget(self._client, self._topic)

    # ---- tasks ----

    def submit(self, lease: Lease, worker: str, declared_gpus: float) -> Future:
        """Send a lease to a worker; it asks for its agent's devices where these are declared."""
        gpus = min(lease.gpus, declared_gpus)
        return self._client.submit(
            run_lease,
            self.name,
            lease,
            key=lease_key(self.name, lease),
            workers=[worker],
            resources={GPU: gpus} if gpus else None,
            priority=0 if gpus else AHEAD,
            retries=0,
            pure=False,
        )


def _hear(heard: Callable[[WorkerEvent], None], event: tuple[float, Any]) -> None:
    _, message = event
    heard(unpacked(message))
