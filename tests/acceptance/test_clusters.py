"""The same call on a cluster of worker processes on this machine."""

from __future__ import annotations

from multiprocessing import resource_tracker
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from distributed import Client, LocalCluster, Security

import daskprs
from daskprs import OptionError, ParallelRunFailed
from tests.support.local_servers import LOCAL_SERVERS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FRAME = pd.DataFrame({"number": range(40)})


@pytest.fixture
def client() -> Iterator[Client]:
    """Yield a client of two workers with two threads each; it is the current one."""
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=2,
            **LOCAL_SERVERS,
        ) as cluster,
        Client(cluster) as current,
    ):
        yield current
    # multiprocessing keeps a process of its own once it has started others.
    resource_tracker._resource_tracker._stop()


def test_a_job_uses_the_slots_of_all_workers(tmp_path: Path, client: Client) -> None:
    """Two jobs after each other leave the cluster as it was."""
    before = client.run(lambda dask_worker: sorted(dask_worker.plugins))
    for number in (1, 2):
        result = daskprs.parallel_run(
            FRAME,
            lambda mini_batch: mini_batch,
            mini_batch_size=8,
            job_dir=tmp_path / f"job{number}",
            client=client if number == 1 else None,
            progress=False,
        )
        pd.testing.assert_frame_equal(result.to_pandas(), FRAME)
        stdout = result.logs_dir / "user" / "stdout" / "0"
        assert len(list(stdout.iterdir())) == 4
    assert client.run(lambda dask_worker: sorted(dask_worker.plugins)) == before


@pytest.mark.long
def test_process_count_per_node_is_dealt_out_to_the_workers_of_a_host(
    tmp_path: Path, client: Client
) -> None:
    """Three processes on one node with two workers."""
    result = daskprs.parallel_run(
        FRAME,
        lambda mini_batch: mini_batch,
        mini_batch_size=8,
        job_dir=tmp_path / "job",
        client=client,
        process_count_per_node=3,
        progress=False,
    )
    assert len(list((result.logs_dir / "user" / "stdout" / "0").iterdir())) == 3


def test_a_cluster_may_talk_tls(tmp_path: Path) -> None:
    """By a client that has the certificates; agents and rows need none."""
    security = Security.temporary()
    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=2,
            protocol="tls://",
            security=security,
            **LOCAL_SERVERS,
        ) as cluster,
        Client(cluster.scheduler_address, security=security, set_as_default=False) as client,
    ):
        assert client.scheduler.address.startswith("tls://")
        result = daskprs.parallel_run(
            FRAME,
            lambda mini_batch: mini_batch,
            mini_batch_size=8,
            job_dir=tmp_path / "job",
            client=client,
            progress=False,
        )
        pd.testing.assert_frame_equal(result.to_pandas(), FRAME)
    resource_tracker._resource_tracker._stop()


def test_what_is_no_client_is_refused(tmp_path: Path) -> None:
    """The message says what is taken."""
    with pytest.raises(OptionError, match=r"client: a distributed\.Client, an address such"):
        daskprs.parallel_run(FRAME, print, job_dir=tmp_path / "job", client=5)


def test_an_error_of_our_own_leaves_its_traceback_in_the_log(tmp_path: Path) -> None:
    """The message has its last line; here by something that calls itself a client."""
    nobody = type("Client", (), {})()
    with pytest.raises(ParallelRunFailed, match=r"AttributeError: 'Client' object has no"):
        daskprs.parallel_run(FRAME, print, job_dir=tmp_path / "job", client=nobody, progress=False)
    log = (tmp_path / "job" / "logs" / "sys" / "master_role.txt").read_text()
    assert "DEBUG" in log
    assert "Traceback (most recent call last)" in log
