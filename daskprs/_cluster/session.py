"""A driver's presence on a cluster: its plugins, its workers' events, its leases."""

from __future__ import annotations

from functools import partial
from math import floor
from typing import TYPE_CHECKING, Any

from distributed.protocol.pickle import dumps

from daskprs._cluster.lease import lease_key, run_lease
from daskprs._cluster.lost_cluster import check_living
from daskprs._cluster.own_tasks import unannotated
from daskprs._cluster.scaling_demand import ScalingDemand
from daskprs._cluster.scheduler_plugin import JobPlugin, leave
from daskprs._cluster.topics import forget, logs_topic, plugin_name
from daskprs._cluster.worker_events import unpacked
from daskprs._cluster.worker_plugin import GPU, AgentsPlugin
from daskprs.errors import DaskprsError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from distributed import Client, Future

    from daskprs._agent.node.site import DriverInfo
    from daskprs._agent.protocol.messages import JobSpec
    from daskprs._cluster.worker_events import WorkerEvent
    from daskprs._core.lease import Lease

AHEAD = 1
"""Priority of a lease over foreign tasks (0), since a lease holds the thread for milliseconds. A
lease that asks for a device keeps the device, so it waits its turn."""
FINEST = 1 << 20
"""The parts of a device in which leases ask for it."""


class Session:
    """A job on a cluster, as long as the client's connection to its scheduler lasts.

    When the connection is lost, the scheduler ends the job's agents, and the client gives up all
    its futures. After a reconnect, a new session continues the job. Its number is unique within the
    job: remains of one session must not be taken for another's. By `origin` a worker recognizes the
    driver's process and job folder. Dask's loop calls `heard` with each worker event.
    """

    def __init__(
        self,
        client: Client,
        job: JobSpec,
        origin: DriverInfo,
        heard: Callable[[WorkerEvent], None],
        number: int = 0,
    ) -> None:
        self._client = client
        self._job = job
        self._origin = origin
        self._heard = heard
        self.name = plugin_name(job.job_id) + (f"-{number}" if number else "")
        self._topic = f"{self.name}-workers"
        self._topics = (self._topic, logs_topic(job.job_id))
        # After a reconnect the client is "running" again, but has lost all its futures. Only
        # another connection object shows that.
        self._connection = client.scheduler_comm
        self.scaling_demand = ScalingDemand(client, self.name)
        """Requests workers from an adaptive cluster."""

    @property
    def lost(self) -> bool:
        """Whether the session's first connection was lost.

        Raise `DaskprsError` if the client was closed or has given up, so that it will not
        reconnect.
        """
        check_living(self._client)
        return self._client.scheduler_comm is not self._connection

    @property
    def connected(self) -> bool:
        """Whether the client has a connection, the session's or a new one."""
        return bool(self._client.status == "running")

    def open(self) -> None:
        """Register the job with the cluster; workers send heartbeats once they are ready."""
        self._client.subscribe_topic(self._topic, partial(_hear, self._heard))
        agents = AgentsPlugin(self.name, self._topic, self._job, self._origin)
        limit = self._job.rate_limit
        plugin = JobPlugin(self.name, self._topics, self._client.id, dumps(agents), limit)
        try:
            self._client.register_plugin(plugin)
        except ModuleNotFoundError as error:
            address = self._client.scheduler.address
            msg = (
                f"the scheduler {address} cannot take part: {error}. Install the same versions of "
                "daskprs and of what it needs on the scheduler and on all workers."
            )
            raise DaskprsError(msg) from error

    def close(self, hanging: Collection[str] = ()) -> None:
        """Take the job off the cluster, and wait for its agents, except on hanging workers."""
        try:
            leave(self._client, self.name, self._topics, hanging)
        finally:
            self.forget()

    def forget(self) -> None:
        """Ignore further worker events, and request no more workers."""
        self.scaling_demand.close()
        forget(self._client, self._topic)

    # ---- tasks ----

    def submit(
        self,
        lease: Lease,
        worker: str,
        declared_gpus: float,
        staged: Mapping[int, Future],
    ) -> Future:
        """Send a lease to a worker, after the staged partitions that it needs.

        It requests its agent's devices where the worker declares them.
        """
        gpus = asked_gpus(lease.gpus, declared_gpus)
        with unannotated():
            return self._client.submit(
                run_lease,
                self.name,
                lease,
                dict(staged),
                key=lease_key(self.name, lease),
                workers=[worker],
                resources={GPU: gpus} if gpus else None,
                priority=0 if gpus else AHEAD,
                pure=False,
            )


def asked_gpus(share: float, declared: float) -> float:
    """Return how much of the resource ``GPU`` a lease asks for, where its worker has some.

    Dask subtracts floats, and twenty times 0.05 did not fit into 1. What is rounded down to a
    binary fraction is subtracted exactly.
    """
    return floor(min(share, declared) * FINEST) / FINEST


def _hear(heard: Callable[[WorkerEvent], None], event: tuple[float, Any]) -> None:
    _, message = event
    heard(unpacked(message))
