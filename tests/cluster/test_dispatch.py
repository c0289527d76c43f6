"""The driver's loop, where workers go in between."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from distributed import Client, LocalCluster
from distributed.comm import CommClosedError

import daskprs
from daskprs._cluster import worker_plugin
from daskprs._cluster.connect import IN_PROCESS
from daskprs._cluster.lease import fetched
from daskprs._folders.job_folder import JobFolder
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from pathlib import Path

WAITS = """
import time
from pathlib import Path

def run(rows):
    Path("{folder}/began").touch()
    until = time.monotonic() + 60
    while not Path("{folder}/go").exists() and time.monotonic() < until:
        time.sleep(0.02)
    return rows
"""


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


def test_a_worker_that_comes_later_and_cannot_run_agents_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask would only write it to the worker's own log, and the job would wait in silence."""
    (tmp_path / "script.py").write_text(WAITS.format(folder=tmp_path))
    log = JobFolder(tmp_path / "job").master_log

    def refuse(*_: object) -> None:
        msg = "no room"
        raise OSError(msg)

    def add_worker() -> None:
        assert poll_for((tmp_path / "began").exists, 60)
        monkeypatch.setattr(worker_plugin, "WorkerSite", refuse)
        cluster.scale(2)
        assert poll_for(lambda: log.exists() and "no room" in log.read_text(), 60)
        (tmp_path / "go").touch()

    options = {**IN_PROCESS, "n_workers": 1, "threads_per_worker": 1}
    with LocalCluster(**options) as cluster, Client(cluster, set_as_default=False) as client:
        adding = threading.Thread(target=add_worker)
        adding.start()
        result = daskprs.parallel_run(
            pd.DataFrame({"n": range(4)}),
            tmp_path / "script.py",
            client=client,
            job_dir=tmp_path / "job",
            mini_batch_size=2,
        )
        adding.join()
    assert result.status == "Completed"
    (told,) = [line for line in log.read_text().splitlines() if "cannot run agents" in line]
    assert "no room" in told


WITHOUT = """
import sys

class Without:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "daskprs":
            raise ModuleNotFoundError("No module named 'daskprs'", name="daskprs")

sys.meta_path.insert(0, Without())
"""


def test_a_worker_without_daskprs_is_named_and_lives_on(tmp_path: Path) -> None:
    """It is another one's worker; Dask would end it, as it cannot load what it is given."""
    (tmp_path / "script.py").write_text(WAITS.format(folder=tmp_path))
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "sitecustomize.py").write_text(WITHOUT)
    log = JobFolder(tmp_path / "job").master_log
    options = {**IN_PROCESS, "n_workers": 1, "threads_per_worker": 1}
    with LocalCluster(**options, protocol="tcp") as cluster:
        program = [sys.executable, "-m", "distributed.cli.dask_worker", cluster.scheduler_address]
        words = [*program, "--no-nanny", "--no-dashboard", "--nthreads", "1"]
        variables = {**os.environ, "PYTHONPATH": str(tmp_path / "path")}
        worker: list[subprocess.Popen[bytes]] = []

        def add_worker() -> None:
            assert poll_for((tmp_path / "began").exists, 60)
            worker.append(subprocess.Popen(words, env=variables, cwd=tmp_path))
            assert poll_for(lambda: log.exists() and "cannot run" in log.read_text(), 60)
            (tmp_path / "go").touch()

        adding = threading.Thread(target=add_worker)
        adding.start()
        try:
            result = daskprs.parallel_run(
                pd.DataFrame({"n": range(4)}),
                tmp_path / "script.py",
                client=cluster.scheduler_address,
                job_dir=tmp_path / "job",
                mini_batch_size=2,
            )
            adding.join()
            assert len(cluster.scheduler_info["workers"]) == 2
            assert worker[0].poll() is None
        finally:
            for process in worker:
                process.terminate()
                process.wait()
    assert result.status == "Completed"
    (told,) = [line for line in log.read_text().splitlines() if "cannot run agents" in line]
    assert "No module named 'daskprs'" in told
