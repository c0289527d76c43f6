"""The driver's loop, where workers go in between."""

from __future__ import annotations

from typing import Any

import pytest
from distributed import Client, LocalCluster
from distributed.comm import CommClosedError

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


class CutOnce(Client):
    """Its connection is cut while something is fetched, the first time."""

    cut = False

    async def _gather(self, *args: Any, **kwargs: Any) -> Any:
        if not self.cut:
            self.cut = True
            msg = "Stream is closed"
            raise CommClosedError(msg)
        return await super()._gather(*args, **kwargs)


@pytest.mark.parametrize("got", [bytes(10), None])
def test_a_connection_that_is_cut_while_a_result_is_fetched_fails_no_job(got: bytes | None) -> None:
    """It is fetched again; where it is no longer there it is lost, and the job goes on."""
    with (
        LocalCluster(**IN_PROCESS, threads_per_worker=1) as cluster,
        CutOnce(cluster, set_as_default=False) as client,
    ):
        future = client.submit(bytes, 10, pure=False)
        assert fetched(future, client, lambda: got is not None) == got
