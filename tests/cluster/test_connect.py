"""The cluster that a job runs on."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import TYPE_CHECKING

import dask
import pandas as pd
import pytest
from distributed import Client, LocalCluster

import daskprs
from daskprs.agent.site import Mark, Origin
from daskprs.cluster.connect import IN_PROCESS, QUIET, connected
from daskprs.cluster.session import Session
from daskprs.core.limits import Limits
from daskprs.errors import DaskprsError

if TYPE_CHECKING:
    from pathlib import Path

    from daskprs.agent.messages import JobSpec


def test_a_cluster_that_has_gone_is_told_in_plain_words(a_job: JobSpec) -> None:
    """Not by what some part of Dask says that was closed with it."""
    with connected(None, 1) as client:
        origin = Origin("", Mark("", ""), b"")
        session = Session(client, a_job, Limits(), origin, lambda _: None)
        assert not session.lost
    with pytest.raises(DaskprsError, match="the cluster has gone"):
        _ = session.lost


def test_two_jobs_at_a_time_leave_the_settings_of_dask_as_they_were() -> None:
    """The one that began first ends first, in a thread of its own."""
    before = {name: dask.config.get(name) for name in QUIET}
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(connected(None, 1))
        second.enter_context(connected(None, 1))
        first.close()
        assert {name: dask.config.get(name) for name in QUIET} == QUIET
    assert {name: dask.config.get(name) for name in QUIET} == before


@pytest.mark.parametrize("given", [True, False], ids=["given", "current"])
def test_a_client_of_the_running_event_loop_is_refused_and_works_from_a_thread(
    tmp_path: Path, *, given: bool
) -> None:
    """The call would block the loop that the client needs; the message says what to write."""
    rows = pd.DataFrame({"number": range(4)})

    def call(client: Client) -> pd.DataFrame:
        result = daskprs.parallel_run(
            rows,
            lambda mini_batch: mini_batch,
            job_dir=tmp_path / "job",
            client=client if given else None,
            progress=False,
        )
        return result.to_pandas()

    async def work() -> pd.DataFrame:
        async with (
            LocalCluster(**IN_PROCESS, threads_per_worker=1, asynchronous=True) as cluster,
            Client(cluster, asynchronous=True) as client,
        ):
            with pytest.raises(daskprs.OptionError, match=r"client: .* await asyncio\.to_thread\("):
                call(client)
            assert not (tmp_path / "job").exists()
            return await asyncio.to_thread(call, client)

    pd.testing.assert_frame_equal(asyncio.run(work()), rows)
