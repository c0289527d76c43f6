"""`map_batches`: lazy collections, whose partitions run in agents within tasks of Dask."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import TYPE_CHECKING, Any

import cloudpickle
import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import psutil
import pyarrow as pa
import pytest
from dask import delayed
from distributed import Client, LocalCluster

import daskprs
import daskprs.accessors
from daskprs._cluster.connect import IN_PROCESS
from daskprs._folders.job_folder import JobFolder
from daskprs._folders.job_lock import holder
from daskprs._job.status import state_of
from daskprs._lazy import task_agents
from daskprs._lazy.committed_parts import CommittedParts
from daskprs.errors import JobFolderError
from tests.support.by_hand import ByHand
from tests.support.cases import mostly_long
from tests.support.polling import poll_for, together

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FRAME = pd.DataFrame({"number": range(24), "name": [f"row {n % 5}" for n in range(24)]})
SCHEMA = {"number": "int64", "square": "float64"}
PARTS = 6
LONGEST_S = 60.0
pytestmark = pytest.mark.filterwarnings("ignore:map_batches. the job folder .* earlier call")
SOON_S = 0.3
"""Seconds for which agents wait for another task, in place of a minute."""


@pytest.fixture(autouse=True)
def _agents_end_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let agents of this process end soon."""
    monkeypatch.setattr(task_agents, "LINGER_S", SOON_S)


def _end_soon() -> None:
    task_agents.LINGER_S = SOON_S


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ByHand]:
    """Yield a cluster of two workers, of two threads each; a test kills one of them."""
    cluster = ByHand(tmp_path_factory.mktemp("cluster"))
    try:
        for _ in range(2):
            cluster.worker("--nthreads", "2")
        with Client(cluster.address, set_as_default=False) as client:
            client.wait_for_workers(2, LONGEST_S)
            client.run(_end_soon)
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def client(cluster: ByHand) -> Iterator[Client]:
    """Yield the current client, of that cluster."""
    with Client(cluster.address) as its:
        yield its


def frame(parts: int = PARTS) -> Any:
    """Return the rows as a dask DataFrame."""
    return dd.from_pandas(FRAME, npartitions=parts)


def square(rows: pd.DataFrame) -> pd.DataFrame:
    """Return what is expected of all rows, of some."""
    return pd.DataFrame({"number": rows["number"], "square": rows["number"] ** 2.0})


def in_tasks(data: Any, script: Any, **options: Any) -> Any:
    """Return a collection whose partitions run in tasks of their own."""
    if options.get("collection") != "bag":
        options = {"schema": SCHEMA} | options
    return daskprs.map_batches(data, script, committed=False, **options)


def same_rows(made: pd.DataFrame) -> bool:
    """Say whether rows are those of a serial map."""
    pd.testing.assert_frame_equal(made.reset_index(drop=True), square(FRAME))
    return True


# ---- within tasks of Dask ----


def test_a_collection_has_the_rows_of_a_serial_map(tmp_path: Path, client: Client) -> None:
    """However Dask computes it, and beside what else it computes."""
    lazy = in_tasks(frame(), square)
    assert lazy._name == in_tasks(frame(), square)._name
    assert same_rows(lazy.compute())
    assert same_rows(lazy.persist().compute())
    lazy.to_parquet(tmp_path / "rows")
    assert same_rows(pd.read_parquet(tmp_path / "rows"))
    sums = lazy.assign(even=lazy["number"] % 2).groupby("even")["square"].sum().compute()
    assert sums.to_dict() == {0: 2024.0, 1: 2300.0}
    assert same_rows(lazy.merge(frame(), on="number")[[*SCHEMA]].compute().sort_values("number"))
    assert lazy.head(2, npartitions=1)["number"].tolist() == [0, 1]
    del client


@pytest.mark.parametrize(
    "scheduler", mostly_long(["threads", "synchronous"], suite=["synchronous"])
)
def test_dask_needs_no_cluster(scheduler: str) -> None:
    """Agents are children of this process then."""
    assert same_rows(in_tasks(frame(), square).compute(scheduler=scheduler))


@pytest.mark.long
def test_every_kind_of_collection() -> None:
    """What run gets and gives is what it would be in a job."""
    bag = db.from_sequence(range(5), npartitions=2)
    parts = [delayed(FRAME)[:9], delayed(FRAME)[9:]]
    cases: list[tuple[Any, Any, dict[str, Any], list[Any]]] = [
        (bag, lambda items: [item + 1 for item in items], {}, [1, 2, 3, 4, 5]),
        (
            da.from_array(np.arange(6).reshape(3, 2), chunks=1),
            lambda rows: rows[:, 1],
            {},
            [1, 3, 5],
        ),
        (parts, lambda rows: rows[:1], {}, [dict(FRAME.iloc[n]) for n in (0, 9)]),
        (parts, len_of_table, {"batch_format": "pyarrow", "meta": FRAME[:0]}, [9, 15]),
        (frame(1), lambda rows: [len(rows)], {"mini_batch_size": 100}, None),
    ]
    for place, (data, script, options, expected) in enumerate(cases):
        lazy = in_tasks(data, script, collection="bag", **options)
        made = lazy.compute(scheduler="threads")
        if expected is None:
            assert len(made) > 1, place
            assert sum(made) == len(FRAME), place
        else:
            assert made == expected, place
    lazy = in_tasks(bag, lambda items: items, schema={"result": "float64"})
    assert lazy["result"].sum().compute(scheduler="threads") == 10.0


def len_of_table(rows: pa.Table) -> list[int]:
    """Return the number of rows of an Arrow table."""
    assert isinstance(rows, pa.Table)
    return [len(rows)]


@pytest.mark.long
def test_frames_of_all_kinds_have_the_accessor() -> None:
    """Those of pandas and polars are cut into mini-batches."""
    for data in (frame(), FRAME, pl.from_pandas(FRAME)):
        lazy = data.prs.map_batches(square, schema=SCHEMA, committed=False, mini_batch_size=150)  # type: ignore[union-attr]
        assert lazy.npartitions > 1
        assert same_rows(lazy.compute(scheduler="threads"))


def test_series_of_all_kinds_have_the_accessor() -> None:
    """A Series is data, as a frame is."""
    for data in (frame()["number"], FRAME["number"], pl.Series(FRAME["number"])):
        assert isinstance(data.prs, daskprs.accessors.FrameAccessor)  # type: ignore[union-attr]


@pytest.mark.parametrize("committed", mostly_long([True, False], suite=[False]))
def test_columns_of_the_data_stand_beside_those_of_run(tmp_path: Path, committed: bool) -> None:  # noqa: FBT001 - a case
    """By row, also after a filter."""
    schema = {"number": "int64", "name": "str", "square": "float64"}
    options: dict[str, Any] = {"job_dir": tmp_path / "job"} if committed else {}
    lazy = daskprs.map_batches(
        frame(),
        lambda rows: square(rows[rows["number"] % 2 == 0])[["square"]],
        schema=schema,
        committed=committed,
        include_columns=["number", "name"],
        **options,
    )
    made = lazy.compute(scheduler="synchronous")
    expected = FRAME.merge(square(FRAME))[::2].reset_index(drop=True)
    pd.testing.assert_frame_equal(made.reset_index(drop=True), expected)


class Strikes:
    """Does what a test says in the first attempts at the row 13."""

    def __init__(self, folder: Path, deed: str, times: int = 1) -> None:
        self.notes = folder / "notes"
        self._deed, self._times = deed, times

    def run(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return rows, or strike."""
        with self.notes.open("a") as notes:
            notes.write(f"{rows['number'].iloc[0]} {os.getpid()}\n")
        if 13 in rows["number"].to_numpy() and len(self.calls(12)) <= self._times:
            if self._deed == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if self._deed == "hang":
                time.sleep(LONGEST_S)
            msg = f"not {self._deed}"
            raise ValueError(msg)
        return square(rows)

    def calls(self, first: int | None = None) -> list[int]:
        """Return the processes of all calls, or of those with a row that came first."""
        lines = self.notes.read_text().splitlines() if self.notes.exists() else []
        calls = [tuple(map(int, line.split())) for line in lines]
        return [process for row, process in calls if first in (None, row)]

    @property
    def has_seen_all(self) -> bool:
        """Whether each part has had a call, if not more."""
        return all(map(self.calls, range(0, len(FRAME), len(FRAME) // PARTS)))


def test_an_agent_that_dies_costs_one_attempt(tmp_path: Path, client: Client) -> None:
    """The Dask worker lives on, and no other mini-batch runs again."""
    strikes = Strikes(tmp_path, "die")
    workers = client.run(os.getpid)
    assert same_rows(in_tasks(frame(), strikes).compute())
    assert len(strikes.calls()) == PARTS + 1
    assert len(strikes.calls(12)) == 2
    assert client.run(os.getpid) == workers


def test_agents_in_tasks_import_what_was_uploaded(tmp_path: Path, client: Client) -> None:
    """Dask puts it into the folder of each worker."""
    (tmp_path / "uploaded.py").write_text("ONE = 1\n")
    client.upload_file(str(tmp_path / "uploaded.py"))

    def run(_rows: Any) -> list[int]:
        return [import_module("uploaded").ONE]

    assert in_tasks(frame(1), run, collection="bag").compute() == [1]


def test_an_error_names_partition_and_mini_batch_and_has_the_traceback(
    tmp_path: Path, client: Client
) -> None:
    """After as many tries as the option says; one more, in a process not sound, does not count."""
    strikes = Strikes(tmp_path, "possible", 9)
    with pytest.raises(daskprs.DaskprsError) as caught:
        in_tasks(frame(), strikes, run_max_try=2).compute()
    told = str(caught.value)
    assert "failed in mini-batch 0 (partition 3), attempt 3 (2 charged). Leave such rows" in told
    assert "ValueError: not possible" in told
    assert "raise ValueError(msg)" in told
    assert len(strikes.calls(12)) == 3
    del client


def test_a_timeout_kills_and_shows_where_it_was(tmp_path: Path) -> None:
    """The stacks of the process that was killed are in the error."""
    strikes = Strikes(tmp_path, "hang", 9)
    lazy = in_tasks(frame(), strikes, run_max_try=1, run_invocation_timeout=0.5)
    with pytest.raises(daskprs.DaskprsError, match=r"(?s)run\(\) exceeded 0.5 s.*in run"):
        lazy.compute(scheduler="synchronous")


def test_rows_of_failed_mini_batches_are_dropped_on_demand(tmp_path: Path, client: Client) -> None:
    """The worker's log has a warning; the other rows of the partition are there."""
    strikes = Strikes(tmp_path, "possible", 9)
    lazy = in_tasks(frame(2), strikes, run_max_try=1, on_error="drop", mini_batch_size="32 B")
    left_out = sorted({*FRAME["number"]} - {*lazy["number"].compute()})
    assert 13 in left_out
    assert len(left_out) < 12, "the partition has other mini-batches"
    told = [line for lines in client.get_worker_logs().values() for _, line in lines]
    assert any("its rows are left out. ValueError" in line for line in told)


def test_an_agent_serves_many_partitions_and_ends(tmp_path: Path) -> None:
    """It calls shutdown before."""
    strikes = Strikes(tmp_path, "nothing", 0)
    script = type("Script", (), {"run": strikes.run, "shutdown": (tmp_path / "over").touch})
    assert same_rows(in_tasks(frame(), script()).compute(scheduler="synchronous"))
    assert len(strikes.calls()) == PARTS
    assert len(set(strikes.calls())) == 1
    assert poll_for((tmp_path / "over").exists)
    assert poll_for(lambda: not psutil.pid_exists(strikes.calls()[0]))


def test_a_task_that_is_cancelled_ends_its_agent(tmp_path: Path, client: Client) -> None:
    """Its thread is free for others at once."""
    strikes = Strikes(tmp_path, "hang", 9)
    future = client.compute(in_tasks(frame(1), strikes))
    assert poll_for(strikes.calls)
    future.cancel()
    assert poll_for(lambda: not psutil.pid_exists(strikes.calls()[0]), SOON_S + LONGEST_S / 3)
    assert len(strikes.calls()) == 1


def test_a_delayed_retry_waits_in_its_task_and_ends_with_it(tmp_path: Path) -> None:
    """The task does nothing meanwhile; a long wait does not keep its thread from others."""
    strikes = Strikes(tmp_path, "raise")
    begun_s = time.monotonic()
    assert same_rows(in_tasks(frame(), strikes, retry_delay=1.5).compute(scheduler="threads"))
    assert time.monotonic() - begun_s >= 1.5
    assert len(strikes.calls(12)) == 2
    (tmp_path / "other").mkdir()
    strikes = Strikes(tmp_path / "other", "raise", 9)
    with (
        LocalCluster(threads_per_worker=1, **IN_PROCESS) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        future = client.compute(in_tasks(frame().partitions[3], strikes, retry_delay=1000))
        assert poll_for(strikes.calls)
        future.cancel()
        assert client.submit(int, "3").result(timeout=LONGEST_S) == 3


def test_agents_end_with_their_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, whatever the time that they would wait for other tasks."""
    monkeypatch.setattr(task_agents, "LINGER_S", LONGEST_S)
    with (
        LocalCluster(threads_per_worker=1, **IN_PROCESS) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        rows = client.compute(
            in_tasks(frame(1), lambda rows: square(rows).assign(square=os.getpid()))
        )
        (agent,) = set(rows.result()["square"].astype(int))
        assert psutil.pid_exists(agent)
    assert not psutil.pid_exists(agent)


@pytest.mark.parametrize("share", mostly_long([1, 0.6], suite=[0.6]))
def test_each_agent_has_devices_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """There are no more agents at a time than devices, since a rest of two serves none."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")

    def devices(_: pd.DataFrame) -> list[str]:
        together(tmp_path / "here", 2)
        return [f"{os.environ['CUDA_VISIBLE_DEVICES']} {os.getpid()}"]

    lazy = in_tasks(frame(), devices, collection="bag", gpus_per_process=share)
    with ThreadPoolExecutor(4) as threads, dask.config.set(pool=threads):
        found = set(lazy.compute(scheduler="threads"))
    assert sorted(one.split()[0] for one in found) == ["3", "5"]
    lazy = in_tasks(frame(), devices, collection="bag", gpus_per_process=4)
    with pytest.raises(daskprs.OptionError, match="gpus_per_process=4"):
        lazy.compute(scheduler="synchronous")


def test_a_lost_worker_costs_what_it_had(tmp_path: Path, client: Client) -> None:
    """Dask runs its partitions again elsewhere; the agents went with the worker."""
    strikes = Strikes(tmp_path, "hang", 1)
    future = client.compute(in_tasks(frame(), strikes))
    assert poll_for(lambda: strikes.calls(12))
    agent = psutil.Process(strikes.calls(12)[0])
    zygote, worker = agent.parents()[:2]
    worker.kill()
    assert same_rows(future.result())
    assert poll_for(lambda: _has_ended(agent) and _has_ended(zygote))


def _has_ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("committed", mostly_long([True, False], suite=[False]))
def test_an_asynchronous_client_computes(tmp_path: Path, cluster: ByHand, committed: bool) -> None:  # noqa: FBT001 - a case
    """The collection is made before, and knows of no loop."""
    data = frame()
    lazy = by_job(data, square, tmp_path) if committed else in_tasks(data, square)

    async def computed() -> pd.DataFrame:
        async with Client(cluster.address, asynchronous=True) as client:
            rows: pd.DataFrame = await client.compute(lazy)
            return rows

    assert same_rows(asyncio.run(computed()))


# ---- by a job ----


def by_job(data: Any, script: Any, folder: Path, **options: Any) -> Any:
    """Return a collection of the rows that a job commits."""
    if options.get("collection") != "bag":
        options = {"schema": SCHEMA} | options
    return daskprs.map_batches(data, script, job_dir=folder / "job", **options)


@pytest.mark.parametrize("size", mostly_long([None, 40], suite=[None]))
def test_a_second_computation_by_any_client_calls_no_run(
    tmp_path: Path, client: Client, size: int | None
) -> None:
    """Each partition has the rows that are made of one partition of the data."""
    strikes = Strikes(tmp_path, "nothing", 0)
    lazy = by_job(frame(), strikes, tmp_path, mini_batch_size=size)
    assert not (tmp_path / "job").exists()
    assert same_rows(lazy.compute())
    calls = len(strikes.calls())
    assert calls == PARTS if size is None else calls > PARTS
    assert same_rows(lazy.persist().compute())
    again = by_job(frame(), Strikes(tmp_path, "nothing", 0), tmp_path, mini_batch_size=size)
    assert again._name != lazy._name
    sums = again.assign(even=again["number"] % 2).groupby("even")["square"].sum()
    assert sums.compute(scheduler="threads").to_dict() == {0: 2024.0, 1: 2300.0}
    assert len(again) == len(FRAME)
    parts = frame().partitions
    for number in range(PARTS):
        mine = again.partitions[number].compute(scheduler="synchronous")
        assert mine["number"].tolist() == parts[number].compute()["number"].tolist()
    assert len(strikes.calls()) == calls
    del client


def rows_of_day(path: str) -> pd.DataFrame:
    """Return the rows of a file; Dask's name for that has the path alone."""
    return pd.read_csv(path)


@pytest.mark.long
def test_a_call_without_a_job_folder_reads_the_data_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graph of a call keeps the folder: wherever it is computed, it finds its own rows."""
    monkeypatch.chdir(tmp_path)
    calls = Strikes(tmp_path, "nothing", 0)

    def lazy(numbers: list[int]) -> Any:
        pd.DataFrame({"number": numbers}).to_csv("day.csv", index=False)
        day = dd.from_map(rows_of_day, ["day.csv"])
        return daskprs.map_batches(day, calls.run, schema=SCHEMA)

    with dask.config.set(scheduler="synchronous"):
        yesterday = lazy([1, 2])
        assert yesterday["number"].compute().tolist() == [1, 2]
        today = lazy([3, 4])
        assert today["number"].compute().tolist() == [3, 4]
        sent = cloudpickle.dumps(yesterday)
        assert yesterday["number"].compute().tolist() == [1, 2]
    program = f"import cloudpickle; print(cloudpickle.loads({sent!r})['number'].sum().compute())"
    elsewhere = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd="/", capture_output=True, check=True
    )
    assert elsewhere.stdout.split() == [b"3"]
    assert len(calls.calls()) == 2
    assert len([*(tmp_path / "daskprs-jobs").iterdir()]) == 2


@pytest.mark.parametrize(
    "scheduler", mostly_long(["synchronous", "distributed"], suite=["synchronous"])
)
def test_rows_of_an_earlier_call_are_used_with_a_warning(
    tmp_path: Path, client: Client, scheduler: str
) -> None:
    """It names the folder and the time; a graph says nothing of its own rows."""
    strikes = Strikes(tmp_path, "nothing", 0)
    at = client if scheduler == "distributed" else scheduler
    lazy = by_job(frame(), strikes, tmp_path)
    lazy.compute(scheduler=at)
    lazy.compute(scheduler=at)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert same_rows(by_job(frame(), strikes, tmp_path).compute(scheduler=at))
        assert poll_for(lambda: len(told) > 0)
    (line,) = {str(one.message) for one in told}
    assert f"the job folder {tmp_path / 'job'} has rows of an earlier call, of 20" in line
    assert "\n" not in line
    assert len(strikes.calls()) == PARTS


def test_only_columns_that_are_needed_are_read(tmp_path: Path) -> None:
    """Dask's optimizer passes a projection to the tasks that read."""
    total = by_job(FRAME, square, tmp_path)["number"].sum()
    (parts,) = total.optimize(fuse=False).expr.find_operations(CommittedParts)
    assert parts.columns == ["number"]
    assert total.compute(scheduler="threads") == FRAME["number"].sum()


@pytest.mark.parametrize(
    "kind",
    mostly_long(
        ["pandas", "polars", "Arrow", "a file", "dask", "a bag"], suite=["a file", "a bag"]
    ),
)
def test_data_of_any_kind_has_a_job(tmp_path: Path, kind: str) -> None:
    """What has no partitions is cut into mini-batches, which partitions share out."""
    FRAME.to_parquet(tmp_path / "rows.parquet")
    (tmp_path / "script").mkdir()
    (tmp_path / "script" / "factor.py").write_text("POWER = 2.0\n")
    script = tmp_path / "script" / "square.py"
    script.write_text(
        "import factor\n"
        "def run(rows):\n"
        "    return rows[['number']].assign(square=rows['number'] ** factor.POWER)\n"
    )
    if kind == "a bag":
        bag = db.from_sequence(range(5), npartitions=2)
        lazy = by_job(bag, lambda items: [n + 1 for n in items], tmp_path, collection="bag")
        assert lazy.compute(scheduler="threads") == [1, 2, 3, 4, 5]
        return
    data: Any = {
        "pandas": FRAME,
        "polars": pl.from_pandas(FRAME),
        "Arrow": pa.table(FRAME),
        "a file": tmp_path / "rows.parquet",
        "dask": frame(2),
    }[kind]
    lazy = by_job(data, script, tmp_path, mini_batch_size=150)
    assert lazy.npartitions > 1
    assert same_rows(lazy.compute(scheduler="threads"))


def test_two_computations_at_once_share_one_job(tmp_path: Path, client: Client) -> None:
    """One runs it, on the cluster or here, and the other one waits."""
    strikes = Strikes(tmp_path, "nothing", 0)
    with ThreadPoolExecutor(2) as threads:
        there = client.compute(by_job(frame(), strikes, tmp_path))
        here = threads.submit(by_job(frame(), strikes, tmp_path).compute, scheduler="synchronous")
        assert same_rows(there.result())
        assert same_rows(here.result())
    assert len(strikes.calls()) == PARTS


@pytest.mark.long
def test_what_is_committed_survives_the_workers(tmp_path: Path) -> None:
    """Killed during the job, only what was lost runs again; killed after it, nothing does."""
    strikes = Strikes(tmp_path, "hang", 1)
    folder = tmp_path / "cluster"
    folder.mkdir()
    cluster = ByHand(folder)
    try:
        workers = [cluster.worker("--nthreads", "2") for _ in range(2)]
        with Client(cluster.address, set_as_default=False) as client:
            client.wait_for_workers(2, LONGEST_S)
            future = client.compute(by_job(frame(), strikes, tmp_path))
            assert poll_for(lambda: strikes.has_seen_all)
            for worker in workers:
                worker.kill()
            cluster.worker("--nthreads", "2")
            assert same_rows(future.result(LONGEST_S))
            before = len(strikes.calls())
            assert before < 2 * PARTS
            assert len(strikes.calls(12)) == 2
            kept = client.persist(by_job(frame(), strikes, tmp_path))
            assert same_rows(kept.compute(scheduler=client))
            os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
            cluster.worker("--nthreads", "2")
            assert same_rows(client.compute(kept).result(LONGEST_S))
            assert len(strikes.calls()) == before
    finally:
        cluster.close()


def test_a_job_that_failed_is_resumed(tmp_path: Path) -> None:
    """The error has the cause; the next computation runs only what has failed."""
    strikes = Strikes(tmp_path, "possible", 1)
    lazy = by_job(frame(), strikes, tmp_path, run_max_try=1, allowed_failed_count=0)
    with pytest.raises(daskprs.ParallelRunFailed, match="not possible"):
        lazy.compute(scheduler="threads")
    assert same_rows(lazy.compute(scheduler="threads"))
    assert len(strikes.calls(12)) == 2
    dropped = Strikes(tmp_path, "allowed", 99)
    lazy = by_job(frame(), dropped, tmp_path / "other", run_max_try=1, on_error="drop")
    with pytest.warns(UserWarning, match="1 mini-batch failed in the end"):
        numbers = lazy["number"].compute(scheduler="threads")
    assert numbers.tolist() == [*range(12), *range(16, 24)]


def test_a_computation_that_is_cancelled_cancels_the_job(tmp_path: Path, client: Client) -> None:
    """The next one goes on with it."""
    strikes = Strikes(tmp_path, "hang", 1)
    future = client.compute(by_job(frame(), strikes, tmp_path))
    assert poll_for(lambda: strikes.has_seen_all)
    future.cancel()
    folder = JobFolder(tmp_path / "job")
    assert poll_for(lambda: holder(folder) is None)
    assert state_of(folder).status == "Canceled"
    assert same_rows(by_job(frame(), strikes, tmp_path).compute())
    assert len(strikes.calls()) < 2 * PARTS


# ---- what is refused ----


@pytest.mark.parametrize("committed", mostly_long([True, False], suite=[True]))
def test_rows_that_are_not_announced_are_refused(tmp_path: Path, committed: bool) -> None:  # noqa: FBT001 - a case
    """The error names mini-batch, column and both types."""

    def computed(script: Any, schema: Any) -> pd.DataFrame:
        options: dict[str, Any] = {"job_dir": tmp_path / str(script)} if committed else {}
        lazy = daskprs.map_batches(
            frame(1), script, schema=schema, committed=committed, run_max_try=1, **options
        )
        rows: pd.DataFrame = lazy.compute(scheduler="synchronous")
        return rows

    def text(rows: pd.DataFrame) -> pd.DataFrame:
        return square(rows).assign(square="a")

    def nulls(rows: pd.DataFrame) -> pd.DataFrame:
        return rows[["number"]].where(rows["number"] > 0)

    with pytest.raises(daskprs.DaskprsError, match=r"'square' is .*string in mini-batch 0.*double"):
        computed(text, SCHEMA)
    with pytest.raises(daskprs.DaskprsError, match=r"lacks the columns \['square'\]"):
        computed(lambda rows: rows[["number"]], SCHEMA)
    with pytest.raises(daskprs.DaskprsError, match=r"'number' is int64 in schema.*'Int64'"):
        computed(nulls, {"number": "int64"})
    schema = FRAME[:1].astype({"number": "Int64", "name": "category"})[:0]
    made = computed(lambda rows: rows.where(rows["number"] > 0), schema)
    assert made.dtypes.astype(str).tolist() == ["Int64", "category"]
    assert made["number"].isna().sum() == 1


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (FRAME, {"schema": None}, "schema: a dask DataFrame announces its columns"),
        (FRAME, {"collection": "bag", "schema": SCHEMA}, r"schema: not with collection='bag'"),
        (FRAME, {"collection": "array"}, r"collection='array': must be one of"),
        (FRAME, {"on_error": "skip"}, r"on_error='skip': must be one of"),
        (FRAME, {"partition_keys": ["name"]}, r"not with committed=False.*shuffle the data by"),
        (FRAME, {"columns": ["name"]}, r"columns=.*committed=False.*data\[\[…\]\]"),
        (FRAME, {"side_inputs": {"a": "."}}, r"side_inputs=.*Only a job sends.*by arguments"),
        (FRAME, {"run_max_tri": 2}, r"Did you mean run_max_try"),
        ("some.parquet", {}, r"dask.dataframe.read_parquet"),
        (FRAME, {"job_dir": "job"}, r"job_dir='job': not with committed=False"),
        (FRAME, {"committed": True, "resume": True}, r"resume=True: not for a lazy"),
        (FRAME, {"committed": True, "overwrite": True}, r"overwrite=True.*by to_parquet"),
        (FRAME, {"committed": True, "job_dir": "s3://a/b"}, r"job_dir=.*folder of this machine"),
        (pl.from_pandas(FRAME).lazy(), {"committed": True}, r"read once"),
    ],
)
def test_a_call_that_cannot_be_is_refused(data: Any, options: dict[str, Any], message: str) -> None:
    """Before anything is made."""
    given = {"schema": SCHEMA, "committed": False, **options}
    with pytest.raises(daskprs.UsageError, match=message):
        daskprs.map_batches(data, square, **given)


def test_a_job_folder_has_the_rows_of_one_call(tmp_path: Path) -> None:
    """Of other scripts, other data and other jobs it is refused."""

    def changed(rows: pd.DataFrame) -> pd.DataFrame:
        return square(rows) * 100

    with dask.config.set(scheduler="threads"):
        lazy = daskprs.map_batches(frame(), square, schema=SCHEMA, job_dir=tmp_path / "job")
        assert same_rows(lazy.compute())
        others = [
            daskprs.map_batches(data, script, schema=SCHEMA, job_dir=tmp_path / "job")
            for data, script in [(frame(), changed), (FRAME, square)]
        ]
        for other in others:
            with pytest.raises(JobFolderError, match="rows of other data, of another scri"):
                other.compute()
        daskprs.parallel_run(FRAME, square, job_dir=tmp_path / "eager", progress=False)
        with pytest.raises(JobFolderError, match="rows of other data, of another scri"):
            daskprs.map_batches(
                frame(), square, schema=SCHEMA, job_dir=tmp_path / "eager"
            ).compute()


def test_a_call_that_allows_fewer_failures_runs_them_again(tmp_path: Path) -> None:
    """It fails, and says what to do; a stage that returns no row does not."""

    def bad(rows: pd.DataFrame) -> pd.DataFrame:
        if rows["number"].iloc[0] == 0:
            msg = "the first rows are bad"
            raise ValueError(msg)
        return square(rows)

    with dask.config.set(scheduler="threads"):
        place = tmp_path / "job"
        dropped = daskprs.map_batches(
            frame(), bad, schema=SCHEMA, job_dir=place, on_error="drop", run_max_try=1
        )
        with pytest.warns(UserWarning, match="1 mini-batch failed in the end, and the rows of the"):
            assert len(dropped.compute()) == len(FRAME) * (PARTS - 1) // PARTS
        strict = daskprs.map_batches(frame(), bad, schema=SCHEMA, job_dir=place, run_max_try=1)
        again = "compute the collection again, or make the same call with job_dir='"
        with pytest.raises(daskprs.ParallelRunFailed, match=re.escape(again)):
            strict.compute()
        none = daskprs.map_batches(
            frame(), lambda rows: square(rows)[:0], schema=SCHEMA, job_dir=tmp_path / "none"
        )
        assert len(none.compute()) == 0
