"""The end of a worker that was started for a time, by ``--lifetime``."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from distributed import Worker


def worker_ends_in_s(worker: Worker) -> float | None:
    """Return the seconds until a worker closes by itself; None where it does not.

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
