"""Placeholder tasks ("wishes") that show an adaptive cluster how much work there is.

An adaptive cluster grows by the tasks that wait on its scheduler. A job never has more leases
there than slots, so any cluster would look large enough to Dask. Without workers it would look as
if there were no work.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Client, Future

RESOURCE = "daskprs-wish"
"""The resource that a wish needs. No worker has it, so a wish never runs."""
WISH_S = 0.5
"""Seconds that Dask assumes for a task of unknown duration."""
MOST = 1000


class ScalingDemand:
    """Keeps waiting tasks on the scheduler, in proportion to the remaining work.

    On a cluster that is not known to adapt, it keeps one task until the first worker comes.
    """

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name
        self._futures: list[Future] = []
        self._made = 0

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
            self._futures += self._client.map(
                bytes, [0] * new, key=keys, resources={RESOURCE: 1}, retries=0, pure=False
            )

    def close(self) -> None:
        """Drop all wishes."""
        self._futures.clear()

    def _adapts(self) -> bool:
        cluster: Any = getattr(self._client, "cluster", None)
        adaptive = getattr(cluster, "_adaptive", None)
        return getattr(adaptive, "periodic_callback", None) is not None
