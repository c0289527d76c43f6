"""A cluster that has gone: its errors while something uses it, or leaves it."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from daskprs.errors import DaskprsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distributed import Client

LIVING = ("running", "connecting")
"""States of a client that has, or may regain, a connection."""
GONE = "the cluster has gone: its scheduler cannot be reached, or the client was closed."
LOG = logging.getLogger("daskprs.cluster")


def check_living(client: Client) -> None:
    """Raise `DaskprsError` when a client was closed or has given up: it will not reconnect."""
    if client.status not in LIVING:
        raise DaskprsError(GONE)


@contextmanager
def lost_cluster_named(client: Client) -> Iterator[None]:
    """Raise `DaskprsError` in place of what Dask raises in a block once the client is closed."""
    try:
        yield
    except DaskprsError:
        raise
    except Exception as error:
        try:
            check_living(client)
        except DaskprsError as gone:
            raise gone from error
        raise


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
