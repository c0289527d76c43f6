"""A cluster that has gone: its errors while something leaves it."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LOG = logging.getLogger("daskprs.cluster")


@contextmanager
def lost_cluster_ignored(doing: str) -> Iterator[None]:
    """Suppress the errors of a block that only leaves a cluster, which may have gone.

    A cluster that has gone needs nothing to be taken back, and its error must not hide the one that
    ended the job. Python's log shows what was being done, and the error, at the level DEBUG.
    """
    try:
        yield
    # Dask has an error for each way to go: a connection that was cut, a loop that has ended, a
    # timeout, a client that was closed (then its attributes are None), a cancelled future.
    except Exception:
        LOG.debug("%s: the cluster has gone", doing, exc_info=True)
