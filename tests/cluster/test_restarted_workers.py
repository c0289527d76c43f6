"""Workers that come late, since they were restarted or are busy, and jobs that wait for them."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import dask
import dask.dataframe as dd
import pandas as pd
import pytest
from distributed import Client, LocalCluster

import daskprs
from daskprs._agent.node.site import THIS_PROCESS, DriverInfo, ProbeFile
from daskprs._cluster import worker_plugin
from daskprs._cluster.worker_plugin import AgentsPlugin
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from pathlib import Path

    from daskprs._agent.protocol.messages import JobSpec

FRAME = pd.DataFrame({"number": range(8)})
SCRIPT = """
import time
from pathlib import Path

FOLDER = Path({folder!r})

def run(mini_batch):
    (FOLDER / "begun").touch()
    until = time.monotonic() + 60
    while not (FOLDER / "go").exists() and time.monotonic() < until:
        time.sleep(0.01)
    return mini_batch
"""


def job(data: Any, folder: Path, client: Client) -> Any:
    """Run a job whose mini-batches wait for a file called `go`, and return its result."""
    folder.mkdir()
    script = folder / "script.py"
    script.write_text(SCRIPT.format(folder=str(folder)))
    return daskprs.parallel_run(
        data,
        str(script),
        mini_batch_size="4 rows",
        run_max_try=1,
        allowed_failed_count=-1,
        job_dir=folder / "job",
        client=client,
        progress=False,
        no_workers_timeout=30,
    )


def test_a_job_goes_on_when_the_cluster_gave_up_its_workers_in_a_restart(tmp_path: Path) -> None:
    """Dask gives up local workers that need more than 15 seconds, as on a busy machine.

    The partitions of a collection, which the restart has dropped, are computed again. None of them
    counts as one that cannot be computed, which an error budget would bear: a job over persisted
    data, which the restart has dropped, too, fails.
    """
    options = {"n_workers": 1, "threads_per_worker": 3, "dashboard_address": "127.0.0.1:0"}
    collection = dd.from_pandas(FRAME, npartitions=4)
    given = {"frame": FRAME, "collection": collection}
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1ms"}),
        LocalCluster(**options) as local,
        Client(local, set_as_default=False) as client,
        ThreadPoolExecutor(3) as threads,
    ):
        given["persisted"] = client.persist(collection)
        going = [threads.submit(job, given[one], tmp_path / one, client) for one in given]
        assert poll_for(lambda: all((tmp_path / one / "begun").exists() for one in given), 60)
        # The cluster may close the nanny before that has answered, which Dask takes for a timeout.
        with suppress(TimeoutError):
            client.restart(wait_for_workers=False)
        assert poll_for(lambda: not local.workers, 60)
        for one in given:
            (tmp_path / one / "go").touch()
        results = [one.result(60) for one in going[:2]]
        for result in results:
            pd.testing.assert_frame_equal(result.to_pandas(), FRAME)
        with pytest.raises(daskprs.ParallelRunFailed, match="has dropped the persisted data"):
            going[2].result(60)
        assert list(local.workers) == list(local.worker_spec)
        logs = [(one.logs_dir / "sys" / "master_role.txt").read_text() for one in results]
        assert sum(log.count("the local cluster has 0 of its 1 worker,") for log in logs) >= 1


def test_a_plugin_that_is_removed_while_its_setup_waits_sends_no_heartbeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, a_job: JobSpec
) -> None:
    """The job ended meanwhile: nothing would ever stop them."""
    asked, answer = threading.Event(), threading.Event()

    def slow() -> tuple[str, ...]:
        asked.set()
        answer.wait(60)
        return ()

    monkeypatch.setattr(worker_plugin, "visible_devices", slow)
    logged: list[Any] = []
    worker: Any = SimpleNamespace(
        address="tcp://a:1",
        lifetime=None,
        local_directory=str(tmp_path),
        handlers={},
        state=SimpleNamespace(total_resources={}, running=True, executing=(), nthreads=1, tasks={}),
        batched_stream=SimpleNamespace(closed=lambda: False),
        log_event=lambda *event: logged.append(event),
    )
    origin = DriverInfo(THIS_PROCESS, ProbeFile("", ""), b"")

    async def add_and_remove() -> None:
        plugin = AgentsPlugin("job", "topic", a_job, origin)
        adding = asyncio.create_task(plugin.setup(worker))
        await asyncio.to_thread(asked.wait, 60)
        await plugin.teardown(worker)
        answer.set()
        await adding

    asyncio.run(add_and_remove())
    assert logged == []
    assert worker.handlers == {}
