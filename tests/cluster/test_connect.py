"""What a cluster is asked, and what it answers."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import dask
import pytest

from daskprs.cluster.connect import QUIET, connected, workers_of
from daskprs.errors import DaskprsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distributed import Client

TIMES = 200


@contextmanager
def asked_by_another(client: Client) -> Iterator[None]:
    """Let the client ask for itself all the time, as it does every two seconds."""
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            client.sync(client._update_scheduler_info)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield
    finally:
        over.set()
        asking.join()


def test_no_worker_is_missed_because_the_client_asks_for_itself() -> None:
    """Its own question is answered without workers: all agents would be taken for lost."""
    with connected(None, 2) as client, asked_by_another(client):
        seen = [workers_of(client) for _ in range(TIMES)]
    assert [len(workers or ()) for workers in seen] == [1] * TIMES


def test_a_cluster_that_has_gone_is_told_in_plain_words() -> None:
    """Not by what some part of Dask says that was closed with it."""
    with connected(None, 1) as client:
        pass
    with pytest.raises(DaskprsError, match="the cluster has gone"):
        workers_of(client)


def test_two_jobs_at_a_time_leave_the_settings_of_dask_as_they_were() -> None:
    """The one that began first ends first, in a thread of its own."""
    before = {name: dask.config.get(name) for name in QUIET}
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(connected(None, 1))
        second.enter_context(connected(None, 1))
        first.close()
        assert {name: dask.config.get(name) for name in QUIET} == QUIET
    assert {name: dask.config.get(name) for name in QUIET} == before
