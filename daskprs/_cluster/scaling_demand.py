"""Placeholder tasks ("wishes") that show an adaptive cluster how much work there is.

An adaptive cluster grows by the tasks that wait on its scheduler. A job never has more leases
there than slots, so any cluster would look large enough to Dask. Without workers it would look as
if there were no work.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import dask
from distributed import LocalCluster

from daskprs._cluster.own_tasks import unannotated
from daskprs._report.humanize import counted

if TYPE_CHECKING:
    from distributed import Client, Future

RESOURCE = "daskprs-wish"
"""The resource that a wish needs. No worker has it, so a wish never runs."""
WISH_S = 0.5
"""Seconds that Dask assumes for a task of unknown duration."""
MOST = 1000
LOST_WORKER_TIMEOUT = "distributed.deploy.lost-worker-timeout"


class ScalingDemand:
    """Keeps waiting tasks on the scheduler, in proportion to the remaining work.

    On a cluster that is not known to adapt, it keeps one task until the first worker comes. A local
    cluster that has given up its workers is asked to start them again.
    """

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name
        self._futures: list[Future] = []
        self._made = 0
        self._asked = False
        """Whether the local cluster was asked for its workers, and has none yet."""

    def wish(self, work_s: float, *, workers: bool) -> None:
        """Set the number of wishes for `work_s` seconds of work."""
        wanted = min(MOST, math.ceil(work_s / WISH_S)) if self._adapts() else 0
        if not workers and work_s > 0:
            wanted = max(1, wanted)
        del self._futures[wanted:]
        new = wanted - len(self._futures)
        if new > 0:
            # Not the prefix of the leases: Dask would assume their durations for the wishes.
            keys = [(f"wish-of-{self._name}", self._made + number) for number in range(new)]
            self._made += new
            with unannotated():
                self._futures += self._client.map(
                    bytes, [0] * new, key=keys, resources={RESOURCE: 1}, pure=False
                )

    def ask_for_lost_workers(self) -> str:
        """Let a local cluster without workers start them again; return what to tell about it.

        If the workers of a local cluster do not come back within 15 seconds after a loss, Dask
        gives them up. This happens in `Client.restart` on a busy machine: the new workers register
        late, and are closed at once, though the cluster is still meant to have them.
        """
        cluster: Any = getattr(self._client, "cluster", None)
        if not isinstance(cluster, LocalCluster) or self._adapts() or not _is_settled(cluster):
            return ""
        wanted = 0 if cluster.workers else len(cluster.worker_spec)
        is_new = bool(wanted) and not self._asked
        self._asked = bool(wanted)
        if not is_new:
            return ""
        cluster.scale(wanted)  # that is their number already, so it only starts what it lacks
        return (
            f"the local cluster has 0 of its {counted(wanted, 'worker')}, and is asked to start "
            "them again. Dask gives up workers that do not come back within "
            f"{LOST_WORKER_TIMEOUT}={dask.config.get(LOST_WORKER_TIMEOUT)}, as in "
            "Client.restart() on a busy machine. Set a longer time before the cluster starts."
        )

    def close(self) -> None:
        """Drop all wishes."""
        self._futures.clear()

    def _adapts(self) -> bool:
        cluster: Any = getattr(self._client, "cluster", None)
        adaptive = getattr(cluster, "_adaptive", None)
        return getattr(adaptive, "periodic_callback", None) is not None


def _is_settled(cluster: Any) -> bool:
    """Say whether a cluster neither starts nor closes workers at present.

    A worker cannot register as long as the one that it replaces has its name.
    """
    lock, closing = getattr(cluster, "_lock", None), getattr(cluster, "_futures", ())
    return not (lock is not None and lock.locked()) and all(one.done() for one in list(closing))
