"""The cluster of a job: it is connected when something first needs it."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from daskprs._system.interrupts import held_back

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distributed import Client


class JobCluster(ExitStack):
    """Connects a job to the cluster of the option `client`, and is closed when the job is over.

    Without a client there is a cluster in this process, with a number of agents.
    """

    def __init__(self, client: Any, agents: int) -> None:
        super().__init__()
        self._given = client
        self._agents = agents
        self._kept: Client | None = None

    @contextmanager
    def connected(self) -> Iterator[Client]:
        """Yield the client of the job, and close it after the block unless it is kept."""
        # Dask takes half a second to import: the zygote does as much at the same time. Not in a
        # thread of our own: Dask takes the one that imports it for the main thread.
        with held_back():
            from daskprs._cluster.connect import connected, outside_pool
            from daskprs._cluster.lost_cluster import lost_cluster_named

        if self._kept is not None:
            yield self._kept
            return
        with connected(self._given, self._agents) as client, lost_cluster_named(client):
            # The job's own Dask task, if it is one, stays outside its thread pool until it is over.
            self.enter_context(outside_pool())
            yield client

    def keep(self, job: ExitStack) -> Client:
        """Return the client of the job, which is closed with `job`."""
        if self._kept is None:
            self._kept = job.enter_context(self.connected())
        return self._kept
