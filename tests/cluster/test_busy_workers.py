"""Jobs on workers whose Dask threads are taken by the tasks of others."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pandas as pd
import pytest
from distributed import Client, LocalCluster, get_client, get_worker, secede, worker_client

import daskprs
from daskprs._agent.node.site import DriverInfo, ProbeFile
from daskprs._agent.supervision.pool import AgentPool
from daskprs._agent.supervision.slot import Slot
from daskprs._cluster.connect import IN_PROCESS, outside_pool
from daskprs._cluster.worker_plugin import AgentsPlugin
from daskprs._core.columnar import ColumnBatch
from daskprs._core.lease import Lease
from daskprs._core.mini_batch import Assigned, MiniBatch
from daskprs.errors import AgentError
from tests.support.by_hand import ByHand
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from daskprs._agent.protocol.messages import JobSpec

FRAME = pd.DataFrame({"number": range(8)})
PATIENCE_S = 30.0


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


def hold(file: Path, until_there: str = "go") -> None:
    """Occupy a Dask thread until there is a file of that name beside this one."""
    file.touch()
    poll_for(file.with_name(until_there).exists, 120)


def job(folder: Path, client: Any, script: Any = lambda rows: rows, **options: Any) -> Any:
    """Run a job of single rows, and return what it returns."""
    result = daskprs.parallel_run(
        FRAME,
        script,
        **{"mini_batch_size": 8, "progress": False, "run_max_try": 1} | options,
        job_dir=folder,
        client=client,
    )
    pd.testing.assert_frame_equal(result.to_pandas(), FRAME)
    return result


def test_a_lease_that_waits_for_a_thread_moves_to_a_worker_that_has_one(
    tmp_path: Path, cluster: ByHand
) -> None:
    """The job is over while the task of another still has the thread of the first worker."""
    cluster.worker()
    cluster.worker()
    with Client(cluster.address, set_as_default=False) as client, ThreadPoolExecutor(1) as threads:
        client.wait_for_workers(2, timeout=60)
        other = client.submit(hold, tmp_path / "held")
        assert poll_for((tmp_path / "held").exists, 60)
        going = threads.submit(job, tmp_path / "job", client)
        over = poll_for(going.done, 60)
        still_held = not other.done()
        (tmp_path / "go").touch()
        result = going.result(60)
        other.result(60)
    assert over
    assert still_held
    assert result.mini_batches.failed == 0


@pytest.mark.long
def test_a_lease_begins_before_the_tasks_that_wait_for_the_thread_already(
    tmp_path: Path, cluster: ByHand
) -> None:
    """It has the thread for milliseconds; behind them it would wait for each of them to end."""
    cluster.worker()
    mark = tmp_path / "begun"

    def run(rows: pd.DataFrame) -> pd.DataFrame:
        mark.touch()
        return rows

    with Client(cluster.address, set_as_default=False) as client, ThreadPoolExecutor(1) as threads:
        client.wait_for_workers(1, timeout=60)
        first = client.submit(hold, tmp_path / "first", "next")
        assert poll_for((tmp_path / "first").exists, 60)
        second = client.submit(hold, tmp_path / "second")
        going = threads.submit(job, tmp_path / "job", client, run)

        def sent() -> bool:
            keys = [key for keys in client.processing().values() for key in keys]
            return sum("daskprs" in str(key) for key in keys) == 1

        assert poll_for(sent, 60)
        (tmp_path / "next").touch()
        first.result(60)
        begun = poll_for(mark.exists, 30)
        (tmp_path / "go").touch()
        going.result(60)
        second.result(60)
    assert begun


def job_in_a_task(folder: Path, how: str) -> bool:
    """Run a job in a Dask task, and say whether its thread is in the worker's pool afterwards."""
    if how == "worker_client":
        with worker_client() as client:
            job(folder, client)
    else:
        client = get_client()
        if how == "seceded":
            secede()
        address = client.scheduler.address
        other_spelling = address.replace("127.0.0.1", "localhost")
        job(
            folder,
            {"current": None, "address": address, "other spelling": other_spelling}.get(
                how, client
            ),
        )
    return threading.current_thread() in get_worker().executor._threads


@pytest.mark.long
def test_jobs_in_tasks_leave_the_only_thread_to_their_leases(
    tmp_path: Path, cluster: ByHand
) -> None:
    """Else they would wait for ever; afterwards each task is where it was before."""
    ways = ["get_client", "current", "address", "other spelling", "worker_client", "seceded"]
    cluster.worker()
    with Client(cluster.address, set_as_default=False) as client:
        tasks = [client.submit(job_in_a_task, tmp_path / way, way, pure=False) for way in ways]
        assert poll_for(lambda: all(task.done() for task in tasks), 150)
        assert client.gather(tasks) == [True, True, True, True, True, False]


def task_without_threads() -> tuple[str, bool]:
    """Leave the pool where no thread can be started; return the error, and who is in the pool."""
    pool = get_worker().executor

    def refuse() -> None:
        pool._threads.add(threading.Thread())
        msg = "can't start new thread"
        raise RuntimeError(msg)

    pool._adjust_thread_count, adjust = refuse, pool._adjust_thread_count
    try:
        with pytest.raises(AgentError) as caught, outside_pool():
            pass
    finally:
        pool._adjust_thread_count = adjust
    return str(caught.value), pool._threads == {threading.current_thread()}


def test_a_job_in_a_task_keeps_the_thread_if_the_worker_can_start_no_other() -> None:
    """A pool that counts a thread which never began takes tasks, and runs none."""
    options = {**IN_PROCESS, "threads_per_worker": 1}
    with LocalCluster(**options) as cluster, Client(cluster, set_as_default=False) as client:
        said, whole = client.submit(task_without_threads).result(60)
        assert whole
        assert client.submit(sum, [1, 2]).result(60) == 3
    assert "could not start a thread in place of the one of this job: can't start new" in said


def test_a_lease_that_was_given_back_does_not_begin_any_more(a_job: JobSpec) -> None:
    """Though its task gets a thread before the cluster knows that the lease was moved."""
    pool = AgentPool(a_job)
    work = ColumnBatch([Assigned(MiniBatch(index, None, str(index), 1), 1) for index in (3, 4)])
    assert pool.withdraw(0, 7)
    returned = pool.run(Lease(7, work))
    assert returned.withdrawn
    assert returned.untouched == (3, 4)
    assert pool.states() == {}
    pool.close()


def test_a_lease_that_has_begun_is_not_given_back(a_job: JobSpec) -> None:
    """Nor is an earlier lease of its slot; a later one is."""
    pool = AgentPool(a_job)
    assert pool.run(Lease(7, ColumnBatch([]))).vacant
    assert not pool.withdraw(0, 7)
    assert not pool.withdraw(0, 6)
    assert pool.withdraw(0, 8)
    assert pool.withdraw(1, 7)
    pool.close()


def test_the_loop_of_a_worker_goes_on_while_an_agent_ends(a_job: JobSpec) -> None:
    """A process that waits for a disk or a device takes its time to die."""
    plugin = AgentsPlugin("job", "topic", a_job, DriverInfo("", ProbeFile("", ""), b""))
    ending, ended = threading.Event(), threading.Event()
    asked: list[tuple[int, int]] = []

    def kill(slot: int, lease_id: int) -> None:
        asked.append((slot, lease_id))
        ending.set()
        ended.wait(PATIENCE_S)

    plugin.pool = cast("AgentPool", SimpleNamespace(kill=kill))
    plugin._queued_s, plugin._lacking_s = {}, {}
    try:
        plugin.transition(("job", 3, 0), "executing", "released")
        assert ending.wait(PATIENCE_S)
        assert not ended.is_set()
        assert asked == [(0, 3)]
    finally:
        ended.set()


def test_an_agent_is_not_killed_for_a_lease_that_has_ended() -> None:
    """It may work on the next one by then."""
    slot = Slot(lambda *_: pytest.fail("nothing is begun"))
    ends: list[None] = []
    slot._agent = cast("Any", SimpleNamespace(end=lambda: ends.append(None), alive=lambda: False))
    slot._lease_id = 8
    slot.kill(7)
    assert not ends
    slot.kill(8)
    slot.kill()
    assert len(ends) == 2
