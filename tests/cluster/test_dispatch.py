"""The driver's loop, where workers go in between."""

from __future__ import annotations

from distributed import Client, LocalCluster

from daskprs.cluster.connect import IN_PROCESS
from daskprs.cluster.lease import fetched


def test_a_worker_that_goes_before_its_result_is_fetched_is_lost_with_it() -> None:
    """Nobody waits for Dask, which would wait for that very worker to do it again."""
    options = {**IN_PROCESS, "n_workers": 2, "threads_per_worker": 1}
    with LocalCluster(**options) as cluster, Client(cluster, set_as_default=False) as client:
        worker = cluster.workers[0]
        future = client.submit(bytes, 10, workers=[worker.address], pure=False)
        assert fetched(future, client, lambda: True) == bytes(10)
        future = client.submit(bytes, 10, workers=[worker.address], pure=False)
        assert future.result() == bytes(10)
        cluster.sync(worker.close)
        assert fetched(future, client, lambda: False) is None
