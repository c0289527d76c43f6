"""Wishes for workers: by these an adaptive cluster sees how much there is to do.

It grows by the tasks that wait on its scheduler. A job never has more of them there than it has
slots, so to Dask it looks as if a cluster of any size were large enough; and without workers, as if
there were nothing to do.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Client, Future

RESOURCE = "daskprs-wish"
"""What a wish asks for, and no worker has: it is never run."""
WISH_S = 0.5
"""For so many seconds of work Dask takes a task of which it knows nothing."""
MOST = 1000


class ScalingDemand:
    """Keeps as many waiting tasks on the scheduler as there would be, were all work there.

    On a cluster that is not known to adapt it is one, as long as there is no worker at all.
    """

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name
        self._futures: list[Future] = []
        self._made = 0

    def wish(self, work_s: float, *, workers: bool) -> None:
        """Wish for the workers that so many seconds of work would bring."""
        wanted = min(MOST, math.ceil(work_s / WISH_S)) if self._adapts() else 0
        if not workers and work_s > 0:
            wanted = max(1, wanted)
        del self._futures[wanted:]
        new = wanted - len(self._futures)
        if new > 0:
            # Not the prefix of the leases: what Dask knows of their durations is no wish's.
            keys = [(f"wish-of-{self._name}", self._made + number) for number in range(new)]
            self._made += new
            self._futures += self._client.map(
                bytes, [0] * new, key=keys, resources={RESOURCE: 1}, retries=0, pure=False
            )

    def close(self) -> None:
        """Wish for nothing more."""
        self._futures.clear()

    def _adapts(self) -> bool:
        cluster: Any = getattr(self._client, "cluster", None)
        adaptive = getattr(cluster, "_adaptive", None)
        return getattr(adaptive, "periodic_callback", None) is not None
