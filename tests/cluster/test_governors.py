"""Workers ask the scheduler for permits, also while a job is leaving it."""

from __future__ import annotations

from typing import Any

from distributed import Client, LocalCluster

from daskprs._cluster.governors import ask_governor
from tests.support.local_servers import LOCAL_SERVERS


async def asked(dask_worker: Any) -> str:
    """Return what a worker is told."""
    try:
        await ask_governor(dask_worker, "job", {})
    except OSError as error:
        return str(error)
    return "an answer"


def test_a_scheduler_without_governors_is_one_that_does_not_answer() -> None:
    """Else the worker would ask no more, and its processes would wait for permits for ever."""
    servers = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
    with LocalCluster(**servers, **LOCAL_SERVERS) as cluster, Client(cluster) as client:
        assert [*client.run(asked).values()] == ["the scheduler has no governor"]
