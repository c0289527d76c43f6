"""What a job has on a cluster while it runs, and that nothing of it is left."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pandas as pd
import psutil
import pytest
from distributed import Client, LocalCluster

import daskprs
from daskprs._agent.node.environment import visible_devices
from daskprs._cluster.connect import IN_PROCESS
from daskprs._cluster.session import asked_gpus
from tests.support.by_hand import ByHand
from tests.support.polling import poll_for, together

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ALONE = pytest.mark.cold
"""For tests that look at the children of a process: a template would be one."""
FRAME = pd.DataFrame({"number": range(8)})
TIMES = 5
WAITING = """
import os
import time
from pathlib import Path

FOLDER = Path({folder!r})

def run(mini_batch):
    (FOLDER / "begun").touch()
    (FOLDER / f"agent-{{os.getpid()}}").touch()
    until = time.monotonic() + 60
    while not (FOLDER / "go").exists() and time.monotonic() < until:
        time.sleep(0.01)
    return mini_batch
"""
CALLER = """
import sys
import pandas as pd
import daskprs

address, script, job_dir = sys.argv[1:]
frame = pd.DataFrame({"number": range(8)})
daskprs.parallel_run(frame, script, job_dir=job_dir, client=address, progress=False)
"""


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    """Return a script that waits until there is a file called `go`."""
    script = tmp_path / "script.py"
    script.write_text(WAITING.format(folder=str(tmp_path)))
    return script


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ByHand]:
    """Yield a cluster of a scheduler and nothing else."""
    (tmp_path / "cluster").mkdir()
    by_hand = ByHand(tmp_path / "cluster")
    try:
        yield by_hand
    finally:
        (tmp_path / "go").touch()
        by_hand.close()


def job(folder: Path, client: Any, script: Any = lambda rows: rows, **options: Any) -> Any:
    """Run a job of single rows, and return what it returns."""
    result = daskprs.parallel_run(
        FRAME,
        script,
        **{"mini_batch_size": 8, "progress": False} | options,
        job_dir=folder,
        client=client,
    )
    pd.testing.assert_frame_equal(result.to_pandas(), FRAME)
    return result


def on_the_scheduler(dask_scheduler: Any) -> dict[str, Any]:
    """Return whatever a job might leave there."""
    return {
        "plugins": sorted(dask_scheduler.plugins),
        "worker plugins": sorted(dask_scheduler.worker_plugins),
        "topics": [topic for topic in dask_scheduler._broker._topics if "daskprs" in topic],
        "handlers": len(dask_scheduler.handlers) + len(dask_scheduler.stream_handlers),
        "tasks": len(dask_scheduler.tasks),
        "groups": len(dask_scheduler.task_groups),
        "prefixes": sorted(dask_scheduler.task_prefixes),
    }


def on_a_worker(dask_worker: Any) -> dict[str, Any]:
    """Return whatever a job might leave there."""
    return {
        "plugins": sorted(dask_worker.plugins),
        "handlers": len(dask_worker.handlers) + len(dask_worker.stream_handlers),
        "tasks": len(dask_worker.state.tasks),
        "loops": len(dask_worker.periodic_callbacks),
    }


def what_is_there(client: Client) -> dict[str, Any]:
    """Return all of it."""
    return {
        "scheduler": client.run_on_scheduler(on_the_scheduler),
        "workers": client.run(on_a_worker),
        "futures": len(client.futures),
        "handlers": sorted(client._event_handlers),
        "threads": sum("daskprs" in thread.name for thread in threading.enumerate()),
        "children": len(psutil.Process().children(recursive=True)),
    }


@ALONE
@pytest.mark.long
def test_a_cluster_that_was_used_many_times_is_as_it_was(tmp_path: Path) -> None:
    """Nothing is left on the scheduler, the workers or the client but the name of a prefix."""
    options = {**IN_PROCESS, "n_workers": 2, "threads_per_worker": 1}
    with LocalCluster(**options) as local, Client(local, set_as_default=False) as client:
        job(tmp_path / "first", client)  # the name of the prefix stays, one for all jobs
        assert poll_for(lambda: what_is_there(client)["handlers"] == ["print", "warn"], 30)
        before = what_is_there(client)
        for number in range(TIMES):
            job(tmp_path / str(number), client)
        assert poll_for(lambda: what_is_there(client) == before, 30), what_is_there(client)


@pytest.mark.long
def test_two_jobs_at_a_time_do_not_disturb_each_other(tmp_path: Path) -> None:
    """One fails in the middle of the other."""
    options = {**IN_PROCESS, "n_workers": 2, "threads_per_worker": 2}

    def fail(rows: pd.DataFrame) -> pd.DataFrame:
        del rows
        msg = "on purpose"
        raise ValueError(msg)

    with (
        LocalCluster(**options) as local,
        Client(local, set_as_default=False) as client,
        ThreadPoolExecutor(3) as threads,
    ):
        jobs = [
            threads.submit(job, tmp_path / str(number), client, script)
            for number, script in enumerate([lambda rows: rows, fail, lambda rows: rows])
        ]
        assert jobs[0].exception() is None
        assert "on purpose" in str(jobs[1].exception())
        assert jobs[2].exception() is None


@ALONE
def test_what_a_killed_caller_leaves_is_taken_away(
    tmp_path: Path, waiting: Path, cluster: ByHand
) -> None:
    """The scheduler ends its agents; the next job finds nothing of it."""
    worker = cluster.worker("--nthreads", "2")
    with Client(cluster.address, set_as_default=False) as client:
        client.wait_for_workers(1, timeout=60)
        before = client.run_on_scheduler(on_the_scheduler), client.run(on_a_worker)
        caller = subprocess.Popen(
            [sys.executable, "-c", CALLER, cluster.address, str(waiting), str(tmp_path / "job")]
        )
        assert poll_for((tmp_path / "begun").exists, 60)
        assert psutil.Process(worker.pid).children(recursive=True)
        caller.kill()
        caller.wait()
        assert poll_for(lambda: not psutil.Process(worker.pid).children(recursive=True), 30)

        def as_before() -> bool:
            now = client.run_on_scheduler(on_the_scheduler), client.run(on_a_worker)
            now[0]["prefixes"] = before[0]["prefixes"]
            return bool(now == before)

        assert poll_for(as_before, 30)


def test_a_job_goes_on_when_its_connection_to_the_scheduler_is_back(
    tmp_path: Path, waiting: Path, cluster: ByHand
) -> None:
    """What was out runs again, uncharged: one try is all that it has."""
    cluster.worker()
    with Client(cluster.address, set_as_default=False) as client, ThreadPoolExecutor(1) as threads:
        going = threads.submit(job, tmp_path / "job", client, str(waiting), run_max_try=1)
        assert poll_for((tmp_path / "begun").exists, 60)
        (tmp_path / "begun").unlink()
        client.loop.add_callback(client.scheduler_comm.comm.abort)
        assert poll_for((tmp_path / "begun").exists, 60)
        (tmp_path / "go").touch()
        result = going.result(60)
        assert result.mini_batches.failed == 0
        left = client.run_on_scheduler(on_the_scheduler)
        assert "daskprs" not in f"{left['plugins']} {left['worker plugins']} {left['topics']}"


def test_a_worker_that_joins_is_used_and_a_job_may_begin_without_any(
    tmp_path: Path, waiting: Path, cluster: ByHand
) -> None:
    """The first one comes when the job waits for it, the second while it works."""
    with Client(cluster.address, set_as_default=False) as client, ThreadPoolExecutor(1) as threads:
        going = threads.submit(job, tmp_path / "job", client, str(waiting))
        cluster.worker()
        assert poll_for((tmp_path / "begun").exists, 60)
        cluster.worker()  # of one thread, as the first one
        assert poll_for(lambda: len([*tmp_path.glob("agent-*")]) == 2, 60)
        (tmp_path / "go").touch()
        going.result(60)


def test_an_adaptive_cluster_grows_by_what_there_is_to_do(tmp_path: Path, waiting: Path) -> None:
    """From nothing to its maximum, though no more leases wait than there are slots; and back."""
    with (
        LocalCluster(**{**IN_PROCESS, "n_workers": 0, "threads_per_worker": 1}) as local,
        Client(local, set_as_default=False) as client,
        ThreadPoolExecutor(1) as threads,
    ):
        local.adapt(minimum=0, maximum=3, interval="200ms", wait_count=2)
        rows = pd.DataFrame({"number": range(40)})
        going = threads.submit(
            daskprs.parallel_run,
            rows,
            str(waiting),
            mini_batch_size=8,
            job_dir=tmp_path / "job",
            client=client,
            progress=False,
        )
        assert poll_for(lambda: len(local.workers) == 3, 60)
        (tmp_path / "go").touch()
        pd.testing.assert_frame_equal(going.result(60).to_pandas(), rows)
        assert poll_for(lambda: not local.workers, 60)


def seen(rows: pd.DataFrame) -> pd.DataFrame:
    """Return what an agent sees of devices, and who it is."""
    found = os.environ.get("CUDA_VISIBLE_DEVICES", "none"), os.environ["OMP_NUM_THREADS"]
    return rows.assign(device=found[0], threads=found[1], process=daskprs.EntryScript().agent_name)


@pytest.mark.long
def test_workers_of_a_host_give_their_agents_different_devices(
    tmp_path: Path, cluster: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three agents on two workers that both see two devices: one agent sees none."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")
    for _ in range(2):
        cluster.worker("--resources", "GPU=2")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    rows = pd.DataFrame({"number": range(60)})
    with Client(cluster.address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)
        result = daskprs.parallel_run(
            rows,
            lambda mini_batch: together(tmp_path / "here", 3) or seen(mini_batch),
            mini_batch_size=8,
            process_count_per_node=3,
            job_dir=tmp_path / "job",
            client=client,
            progress=False,
        )
    table = result.to_pandas()
    pairs = {(row.process, row.device) for row in table.itertuples()}
    assert {device for _, device in pairs} == {"GPU-a", "GPU-b", "-1"}
    assert {process for process, _ in pairs} == {"process000", "process001", "process002"}
    assert len(pairs) == 3


@pytest.mark.long
def test_workers_that_only_declare_a_gpu_give_each_agent_one(
    tmp_path: Path, cluster: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers of a host, one GPU each: a third process sees none, and the log says so."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("AZ_BATCHAI_GPU_COUNT_FOUND", raising=False)
    if visible_devices() is not None:
        pytest.skip("the driver of NVIDIA names the devices of this machine")
    for _ in range(2):
        cluster.worker("--resources", "GPU=1")
    rows = pd.DataFrame({"number": range(60)})
    with Client(cluster.address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)
        for processes, devices in ((2, {"0", "1"}), (3, {"0", "1", "-1"})):
            result = daskprs.parallel_run(
                rows,
                lambda mini_batch, here=tmp_path / f"here{processes}", count=processes: (
                    together(here, count) or seen(mini_batch)
                ),
                mini_batch_size=8,
                process_count_per_node=processes,
                job_dir=tmp_path / str(processes),
                client=client,
                progress=False,
            )
            table = result.to_pandas()
            pairs = {(row.process, row.device) for row in table.itertuples()}
            assert len(pairs) == processes
            assert {device for _, device in pairs} == devices
            log = (result.logs_dir / "sys" / "master_role.txt").read_text()
            assert ("node 0: 1 of 3 processes sees no GPU" in log) == (processes == 3)


def test_a_worker_that_joins_with_a_gpu_gets_the_process_that_had_none(
    tmp_path: Path, cluster: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first worker of the host had both; what that process has begun is not charged."""

    def sees_both(rows: pd.DataFrame) -> pd.DataFrame:
        device = os.environ["CUDA_VISIBLE_DEVICES"]
        (tmp_path / f"device{device}").touch()
        poll_for((tmp_path / "device1").exists, 60)
        return rows.assign(device=device)

    with Client(cluster.address, set_as_default=False) as client, ThreadPoolExecutor(1) as threads:
        going = threads.submit(
            daskprs.parallel_run,
            pd.DataFrame({"number": range(20)}),
            sees_both,
            mini_batch_size=8,
            process_count_per_node=2,
            run_max_try=1,
            job_dir=tmp_path / "job",
            client=client,
            progress=False,
        )
        for device, also in ("0", "-1"), ("1", "1"):
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", device)
            cluster.worker()
            assert poll_for((tmp_path / f"device{also}").exists, 60)
        table = going.result(60).to_pandas()
    assert set(table["device"]) == {"0", "1"}
    log = (tmp_path / "job" / "logs" / "sys" / "master_role.txt").read_text()
    assert "ends, since another worker of its node has a free GPU." in log


@pytest.mark.parametrize("count", [3, 9, 20, 100])
def test_as_many_leases_as_share_a_gpu_fit_into_what_dask_counts(count: int) -> None:
    """Dask subtracts what each asks for, and compares."""
    left, asked = 1.0, asked_gpus(1 / count, 1.0)
    for _ in range(count):
        assert asked <= left
        left -= asked
    assert left < asked
    assert [asked_gpus(1.0, 0.5), asked_gpus(2.0, 4.0), asked_gpus(1.0, 0.0)] == [0.5, 2.0, 0.0]


@pytest.mark.long
def test_a_lease_waits_for_the_gpu_that_another_task_has(
    tmp_path: Path, cluster: ByHand, waiting: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the cluster declares it; a node with a GPU has one agent that uses it."""

    def wait_for(file: Path) -> None:
        file.with_suffix(".begun").touch()
        poll_for(file.exists, 60)

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    cluster.worker("--nthreads", "4", "--resources", "GPU=1")
    with Client(cluster.address, set_as_default=False) as client, ThreadPoolExecutor(1) as threads:
        client.wait_for_workers(1, timeout=60)
        other = client.submit(wait_for, tmp_path / "freed", resources={"GPU": 1})
        assert poll_for((tmp_path / "freed.begun").exists, 60)
        going = threads.submit(job, tmp_path / "job", client, str(waiting), gpus_per_process=1)

        def sent() -> bool:
            processing = client.processing()
            return any("daskprs" in str(key) for keys in processing.values() for key in keys)

        assert poll_for(sent, 60)
        assert not (tmp_path / "begun").exists()
        (tmp_path / "freed").touch()
        (tmp_path / "go").touch()
        result = going.result(60)
        other.result(60)
    assert len(list((result.logs_dir / "user" / "stdout" / "0").iterdir())) == 1
