"""Dask collections as input: every kind, where it lies, and what becomes of it."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

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
from distributed import Client, Future, futures_of, worker_client

import daskprs
from daskprs._cluster import partition_feed
from daskprs._cluster.partition_feed import PartitionFeed
from daskprs._cluster.staged_in_use import PARTITIONS as STAGED
from daskprs._core import leasing
from tests.support.by_hand import ByHand
from tests.support.cases import mostly_long
from tests.support.polling import poll_for
from tests.support.versions import dtype_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

COUNT, ROWS = 6, 5
LABELS = pd.Index([f"label {n}" for n in range(COUNT * ROWS)], name="label")
FRAME = pd.DataFrame({"number": range(COUNT * ROWS), "half": np.arange(30) / 2}, index=LABELS)
FRAME["name"] = [f"row {n}" for n in range(COUNT * ROWS)]
TEXT = FRAME.to_csv(sep=" ", header=False, index=False)
META = FRAME[:0]
LONGEST_S = 60.0


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a cluster of two workers, of two threads each."""
    cluster = ByHand(tmp_path_factory.mktemp("cluster"))
    try:
        for _ in range(2):
            cluster.worker("--nthreads", "2", "--resources", "LICENCE=1")
        with Client(cluster.address, set_as_default=False) as client:
            client.wait_for_workers(2, LONGEST_S)
        yield cluster.address
    finally:
        cluster.close()


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    """Yield a client of that cluster, on which a test leaves nothing; not the current one."""
    with Client(address, set_as_default=False) as its:
        yield its
        assert poll_for(lambda: not left_on(its)), left_on(its)


def left_on(client: Client) -> list[str]:
    """Return what jobs have left on a cluster: tasks and files."""
    left: list[str] = client.run_on_scheduler(
        lambda dask_scheduler: [key for key in map(str, dask_scheduler.tasks) if "daskprs" in key]
    )
    for folder in client.run(lambda dask_worker: dask_worker.local_directory).values():
        left += map(str, Path(folder, STAGED).glob("*"))
    return left


class Made:
    """Makes partitions, and notes which."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "made"

    def __dask_tokenize__(self) -> str:
        """Return what tells makers apart."""
        return str(self.file)

    def __call__(self, number: int) -> pd.DataFrame:
        """Return the rows of a partition."""
        with self.file.open("a") as file:
            file.write(f"{number}\n")
        return FRAME[number * ROWS : (number + 1) * ROWS]

    def times(self) -> list[int]:
        """Return the numbers of the partitions that were made since the last call."""
        numbers = sorted(map(int, self.file.read_text().split())) if self.file.exists() else []
        self.file.unlink(missing_ok=True)
        return numbers

    def frame(self, count: int = COUNT, make: Callable[[int], Any] | None = None) -> Any:
        """Return a dask DataFrame; `make` is called after this."""
        with dask.config.set({"dataframe.convert-string": False}):
            frame = dd.from_map(self, range(count), meta=META)
            return frame if make is None else frame.map_partitions(make, meta=META)


def options_in(folder: Path, **options: Any) -> dict[str, Any]:
    """Return the options of a job that writes rows, and keeps them with their types."""
    given: dict[str, Any] = {
        "job_dir": folder / "job",
        "output_dir": folder / "out",
        "keep_rows": True,
        "progress": False,
    }
    return given | options


def job(data: Any, script: Any, folder: Path, **options: Any) -> daskprs.ParallelRunResult:
    """Run a job."""
    return daskprs.parallel_run(data, script, **options_in(folder, **options))


def text_of(result: daskprs.ParallelRunResult) -> str:
    """Return the published text."""
    return Path(str(result.output_file)).read_text()


# ---- what a job gives ----

PANDAS_OF: dict[str, Callable[[Any], pd.DataFrame]] = {
    "pandas": lambda rows: rows,
    "pyarrow": pa.Table.to_pandas,
    "polars": pl.DataFrame.to_pandas,
    "numpy": pd.DataFrame,
}


@pytest.mark.parametrize(
    ("batch_format", "size"),
    mostly_long(
        [("pandas", None), ("pandas", 80), ("pyarrow", 80), ("polars", None), ("numpy", 80)],
        suite=[("pandas", 80)],
    ),
)
def test_a_dask_frame_gives_the_bytes_and_labels_of_its_rows(
    tmp_path: Path, client: Client, batch_format: str, size: int | None
) -> None:
    """Each partition is computed once, by a worker."""
    made, to_pandas = Made(tmp_path), PANDAS_OF[batch_format]

    def script(rows: Any) -> pd.DataFrame:
        return to_pandas(rows)

    options = {"batch_format": batch_format, "mini_batch_size": size, "client": client}
    result = job(made.frame(), script, tmp_path, **options)
    assert text_of(result) == TEXT
    pd.testing.assert_frame_equal(result.to_pandas(), FRAME)
    assert made.times() == [*range(COUNT)]
    assert (result.mini_batches.total > COUNT) == (size is not None)


def lines(items: Any) -> list[str]:
    """Return what is in a mini-batch of any kind."""
    return [f"{type(items).__name__} {item}" for item in (items if len(items) else ["nothing"])]


@pytest.mark.long
def test_every_kind_of_collection(tmp_path: Path, client: Client) -> None:
    """On a cluster; the list of one is a mini-batch, unless it is cut."""
    for name in "abc":
        (tmp_path / name).touch()
    paths = [str(tmp_path / name) for name in "abc"]
    numbers = np.arange(6).reshape(3, 2)
    bag = db.from_sequence([{"n": n} for n in range(3)], npartitions=2)
    kinds: list[tuple[Any, int | None, list[str], int]] = [
        (bag, None, [f"list {{'n': {n}}}" for n in range(3)], 2),
        (bag, 1, [f"list {{'n': {n}}}" for n in range(3)], 3),
        (db.from_sequence(paths, npartitions=2), None, [f"list {path}" for path in paths], 2),
        (da.from_array(numbers, chunks=(2, 1)), None, [f"ndarray {n}" for n in numbers], 2),
        (da.from_array(numbers, chunks=(2, 1)), "9 B", [f"ndarray {n}" for n in numbers], 3),
        ([delayed(list)(range(2)), delayed(list)()], 1, ["list 0", "list 1", "list nothing"], 3),
        (client.map(str, [12, 3]), None, ["str 1", "str 2", "str 3"], 2),
    ]
    for place, (data, size, expected, count) in enumerate(kinds):
        result = job(data, lines, tmp_path / str(place), client=client, mini_batch_size=size)
        assert text_of(result).splitlines() == expected, place
        assert result.mini_batches == (count, count, 0), place


def test_a_number_of_items_is_the_same_in_any_words(tmp_path: Path) -> None:
    """A resume with other words for it has changed nothing."""
    bag = db.from_sequence(range(4), npartitions=2)
    job(bag, sorted, tmp_path, mini_batch_size=1)
    for words in ("1 rows", "1 items"):
        again = job(bag, sorted, tmp_path, mini_batch_size=words, resume=True)
        assert text_of(again).split() == [*"0123"]


def test_delayed_frames_with_a_meta_are_a_table(tmp_path: Path) -> None:
    """Their columns and types are announced, as by a dask DataFrame; the others are objects."""
    parts = [delayed(FRAME[start : start + 15]) for start in (0, 15)]
    result = job(parts, lambda rows: rows, tmp_path / "frame", meta=META, mini_batch_size=80)
    assert text_of(result) == TEXT
    pd.testing.assert_frame_equal(result.to_pandas(), FRAME)
    assert result.mini_batches.total > 2
    wrong = {"number": "int64", "half": "float64", "other": "str"}
    with pytest.raises(daskprs.ParallelRunFailed, match=r"\['number', 'half', 'other'\] were ann"):
        job(parts, lambda rows: rows, tmp_path / "wrong", meta=wrong)
    with pytest.raises(daskprs.OptionError, match=r"columns=.*Select them in the tasks"):
        job(parts, lambda rows: rows, tmp_path / "columns", meta=META, columns=["half"])
    with pytest.raises(daskprs.OptionError, match=r"meta=.*not for a frame"):
        job(FRAME, lambda rows: rows, tmp_path / "meta", meta=META)


def test_a_series_in_this_process_without_a_cluster(tmp_path: Path) -> None:
    """It is a frame of one column, as a Series of pandas is."""
    result = job(Made(tmp_path).frame()["half"], lambda rows: rows * 2, tmp_path)
    pd.testing.assert_frame_equal(result.to_pandas(), FRAME[["half"]] * 2)


# ---- where it lies ----


def its_worker(rows: Any) -> list[str]:
    """Return the process id of the worker of this agent, for each row; take a while."""
    time.sleep(0.3)
    process = psutil.Process().parent()
    assert process is not None
    return [f"{process.ppid()}"] * len(rows)


async def _start_stealing(dask_scheduler: Any) -> None:
    await dask_scheduler.extensions["stealing"].start()


async def _stop_stealing(dask_scheduler: Any) -> None:
    await dask_scheduler.extensions["stealing"].stop()


@pytest.fixture
def no_stealing(client: Client) -> Iterator[None]:
    """Keep tasks on the workers that were chosen for them.

    Dask moves a task whose restrictions are loose to any idle worker, if the task would start there
    much sooner.
    """
    client.run_on_scheduler(_stop_stealing)
    yield
    client.run_on_scheduler(_start_stealing)


@pytest.mark.usefixtures("no_stealing")
def test_persisted_partitions_are_used_where_they_lie(
    tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not computed again, and a lease goes to its data; two jobs at once share them.

    However slow a worker is: the other one takes no partition of it, neither before it has told its
    slots, nor because its slots or its Dask threads are busy.
    """
    monkeypatch.setattr(leasing, "MOVE_AFTER_S", LONGEST_S)
    monkeypatch.setattr(leasing.Leasing, "withdraw", lambda _: None)
    turn = PartitionFeed.turn

    def turn_with_both(feed: PartitionFeed, slots: Mapping[str, int], *, are_all: bool) -> None:
        if len(slots) == 2:
            turn(feed, slots, are_all=are_all)

    monkeypatch.setattr(PartitionFeed, "turn", turn_with_both)
    made = Made(tmp_path)
    pids = client.run(os.getpid)
    parts = [
        client.persist(made.frame(4).partitions[number], workers=[list(pids)[number % 2]])
        for number in range(4)
    ]
    persisted, futures = dd.concat(parts), futures_of(parts)
    assert poll_for(lambda: all(future.done() for future in futures))
    where = client.who_has(futures)
    holders = [pids[where[future.key][0]] for part in parts for future in futures_of(part)]
    runs = [
        daskprs.start(
            persisted,
            its_worker,
            client=client,
            **options_in(tmp_path / name, **options),
        )
        for name, options in {"whole": {}, "cut": {"mini_batch_size": 80}}.items()
    ]
    for run in runs:
        rows = run.result(LONGEST_S).to_pandas()["result"].tolist()
        assert rows == [str(pid) for pid in holders for _ in range(ROWS)]
    assert made.times() == [*range(4)]
    assert client.who_has(futures) == where


@pytest.mark.parametrize("options", [{}, {"allowed_failed_count": 0}, {"partition_keys": "number"}])
def test_persisted_partitions_go_with_the_last_name_of_the_caller(
    tmp_path: Path, client: Client, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job lets go of them at its end, not at Python's next collection of garbage."""
    monkeypatch.setattr("daskprs._cluster.key_exchange.LOOK_EVERY_S", 0.001)  # each look is late
    is_to_fail = "allowed_failed_count" in options
    persisted = client.persist(Made(tmp_path).frame(2))
    gc.disable()
    try:
        with pytest.raises(daskprs.ParallelRunFailed) if is_to_fail else nullcontext():
            script = (lambda _: 1 / 0) if is_to_fail else (lambda rows: rows)
            job(persisted, script, tmp_path, client=client, run_max_try=1, **options)
        assert client.futures
        del persisted
        assert poll_for(lambda: not client.futures), list(client.futures)
    finally:
        gc.enable()


@pytest.mark.long
def test_partitions_of_a_worker_without_slots_are_cut_in_order(
    tmp_path: Path, client: Client
) -> None:
    """The first one lies there, and none is numbered before it; those that are ahead wait."""
    first, second = client.scheduler_info(n_workers=-1)["workers"]
    where = [[first, second][number % 2] for number in range(8)]
    for offset in range(2):  # one worker or the other has the only slot
        parts = [
            client.submit(list, (number,), workers=[where[number - offset]], pure=False)
            for number in range(8)
        ]
        assert poll_for(lambda parts=parts: all(part.done() for part in parts))
        options = options_in(tmp_path / str(offset), process_count_per_node=1, mini_batch_size=1)
        run = daskprs.start(parts, lambda items: items, client=client, **options)
        assert text_of(run.result(LONGEST_S)).split() == [*map(str, range(8))]


@pytest.mark.parametrize("partitions", mostly_long([1, 3], suite=[3]))
def test_the_index_of_a_frame_without_rows_is_kept(tmp_path: Path, partitions: int) -> None:
    """It has the type and the name of the collection's."""
    frame = dd.from_pandas(FRAME, npartitions=partitions)
    result = daskprs.parallel_run(
        frame[frame["number"] < 0], lambda rows: rows, **options_in(tmp_path)
    )
    assert result.to_pandas().index.name == "label"
    assert len(result.to_pandas()) == 0


class Refusing(ThreadPoolExecutor):
    """Threads that the system refuses."""

    def submit(self, *_: Any, **__: Any) -> Any:
        """Refuse."""
        msg = "can't start new thread"
        raise RuntimeError(msg)


@pytest.mark.long
def test_a_job_goes_on_where_threads_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That by which Dask calls back, and those that fetch descriptions."""
    monkeypatch.setattr(partition_feed, "ThreadPoolExecutor", Refusing)
    monkeypatch.setattr(Future, "add_done_callback", lambda *_: None)
    assert text_of(job(Made(tmp_path).frame(), lambda rows: rows, tmp_path)) == TEXT


@pytest.mark.parametrize("at", mostly_long([0, 1], suite=[0]))
def test_partitions_that_share_a_task_come_in_order(
    tmp_path: Path, client: Client, at: int
) -> None:
    """Though a worker that holds a later one could begin with that."""
    first, others = [*client.nthreads()][:: 1 - 2 * at]
    frames = [pd.DataFrame({"x": [float(n), 3.0 * n]}) for n in range(6)]
    places = [first, *[others] * 5]
    held = [client.scatter(one, workers=[place]) for one, place in zip(frames, places, strict=True)]
    with dask.config.set({"dataframe.convert-string": False}):
        made = dd.from_delayed([delayed(one) for one in held], meta=frames[0][:0])
    result = job(made - made.mean(), lambda rows: rows, tmp_path, client=client)
    whole = pd.concat(frames)
    assert result.to_pandas()["x"].tolist() == (whole["x"] - whole["x"].mean()).tolist()


def count_wanted(dask_scheduler: Any) -> int:
    """Return how many staged partitions the driver wants; those on their way out are others."""
    tasks = [
        task
        for key, task in dask_scheduler.tasks.items()
        if str(key[0]).startswith("daskprs-partition") and not key[0].endswith("-told")
    ]
    return sum(bool(task.who_wants and task.who_has) for task in tasks)


def test_few_partitions_are_ahead_of_the_slots(tmp_path: Path, client: Client) -> None:
    """At most one for each slot, and two more for each worker, however slow the script is."""
    counts, gate = list[int](), tmp_path / "gate"

    def count() -> int:
        counts.append(client.run_on_scheduler(count_wanted))
        return counts[-1]

    bag = db.from_sequence(range(20), npartitions=20)
    run = daskprs.start(bag, waiting_for(gate), client=client, **options_in(tmp_path))
    assert poll_for(lambda: count() > 4, LONGEST_S)
    gate.touch()
    while not run.wait(0.02):
        count()
    assert run.result().mini_batches == (20, 20, 0)
    assert max(counts) <= 2 * (2 + 2)


def test_annotations_are_kept(tmp_path: Path, client: Client) -> None:
    """Around the call, and in layers: which worker, and one task at a time where it has one."""
    first, second = client.run(os.getpid)
    pids = client.run(os.getpid)
    running = tmp_path / "running"
    running.mkdir()

    def alone(number: int) -> list[int]:
        mark = running / str(os.getpid())
        mark.touch(exist_ok=False)
        time.sleep(0.05)
        mark.unlink()
        return [number, os.getpid()]

    with dask.annotate(resources={"LICENCE": 1}):
        parts = [delayed(alone)(n) for n in range(6)]
    with dask.annotate(workers=[second]):
        result = job(parts, lambda items: items, tmp_path / "around", client=client)
    numbers = [int(line) for line in text_of(result).split()]
    assert numbers[::2] == [*range(6)]
    assert set(numbers[1::2]) == {pids[second]}
    with dask.annotate(workers=[first]):
        bag = db.from_sequence(range(6), npartitions=6).map(lambda _: os.getpid())
    result = job(bag, lambda items: items, tmp_path / "layers", client=client)
    assert set(map(int, text_of(result).split())) == {pids[first]}
    with dask.annotate(resources={"NOWHERE": 1}):
        result = job(pd.DataFrame({"n": [1]}), lambda rows: rows, tmp_path / "own", client=client)
    assert result.items.succeeded == 1, "leases are no tasks of the collection"


def test_a_resource_that_no_worker_has_is_named(tmp_path: Path, client: Client) -> None:
    """The error says what the first partition waits for, and not only that it is late."""
    with dask.annotate(resources={"LICENCE": 2}):
        parts = [delayed(str)(1)]
    told = r"first_task_creation_timeout=1 s: partition 0 waits .* the resource LICENCE=2, and"
    with pytest.raises(daskprs.ParallelRunFailed, match=told):
        job(parts, len, tmp_path, client=client, first_task_creation_timeout=1)


def test_agents_import_what_was_uploaded_to_the_workers(tmp_path: Path, client: Client) -> None:
    """A module, and an archive of modules."""
    (tmp_path / "uploaded.py").write_text("ONE = 1\n")
    with ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("zipped.py", "TWO = 2\n")
    for name in ("uploaded.py", "archive.zip"):
        client.upload_file(str(tmp_path / name))

    def run(_items: list[int]) -> list[int]:
        return [import_module("uploaded").ONE + import_module("zipped").TWO]

    assert text_of(job(db.from_sequence([0]), run, tmp_path, client=client)) == "3\n"


def test_a_run_in_a_dask_task(tmp_path: Path, client: Client) -> None:
    """Its collection is computed beside the task."""
    made = Made(tmp_path)

    def task(folder: Path) -> str:
        with worker_client() as own:
            return text_of(job(made.frame(), lambda rows: rows, folder, client=own))

    assert client.submit(task, tmp_path, pure=False).result(LONGEST_S) == TEXT
    assert made.times() == [*range(COUNT)]


def test_rows_while_it_runs_and_a_cancel(tmp_path: Path, client: Client) -> None:
    """What waits and what is computed is taken back: nothing of it is left on the cluster."""
    run = daskprs.start(
        Made(tmp_path).frame(make=lambda rows: time.sleep(0.1) or rows),
        lambda rows: time.sleep(3600 if rows.number[0] == 3 * ROWS else 0) or rows,
        client=client,
        **options_in(tmp_path),
    )
    batches = run.iter_batches()
    assert [next(batches).number[0] for _ in range(3)] == [0, ROWS, 2 * ROWS]
    run.cancel()
    with pytest.raises(daskprs.ParallelRunCanceled):
        run.result(LONGEST_S)


# ---- what goes wrong ----


class OddError(Exception):
    """An error that only the module of the partitions knows."""


def odd(rows: pd.DataFrame, bad: tuple[int, ...] = (1, 4)) -> pd.DataFrame:
    """Fail for some partitions; another one is empty."""
    number = int(rows.number.iloc[0]) // ROWS
    if number in bad:
        msg = f"no rows for {number}"
        raise OddError(msg)
    return rows[:0] if number == 2 else rows


@pytest.mark.parametrize("size", mostly_long([None, 80], suite=[80]))
def test_partitions_that_cannot_be_computed_are_failed_mini_batches(
    tmp_path: Path, client: Client, size: int | None
) -> None:
    """Tried once; with the class, the message and the traceback of the original error."""
    made = Made(tmp_path)
    result = job(
        made.frame(make=odd),
        lambda rows: rows,
        tmp_path,
        client=client,
        allowed_failed_count=2,
        mini_batch_size=size,
    )
    good = pd.concat([FRAME[:5], FRAME[15:20], FRAME[25:]])
    assert text_of(result) == good.to_csv(sep=" ", header=False, index=False)
    pd.testing.assert_frame_equal(result.to_pandas(), good)
    assert made.times() == [*range(COUNT)]
    failed = result.failed
    assert failed["label"].tolist() == ["partition 1", "partition 4"]
    assert failed["items"].tolist() == [1, 1]
    assert "OddError: partition 1" in failed["error"][0]
    assert "no rows for 1" in failed["error"][0]
    told = "".join(path.read_text() for path in result.logs_dir.rglob("*") if path.is_file())
    assert "raise OddError(msg)" in told
    assert "Traceback" in told


@pytest.mark.long
def test_too_many_such_partitions_fail_the_job(tmp_path: Path, client: Client) -> None:
    """With the first of them."""
    with pytest.raises(daskprs.ParallelRunFailed, match=r"OddError: partition \d .*no rows for"):
        job(
            Made(tmp_path).frame(make=odd),
            lambda rows: rows,
            tmp_path,
            client=client,
            allowed_failed_count=0,
        )


def test_partitions_that_are_not_as_announced(tmp_path: Path, client: Client) -> None:
    """Each is a failed mini-batch that says what it is, and what it should be."""
    liars = [
        lambda rows: rows,
        lambda rows: rows.rename(columns={"half": "third"}),
        lambda rows: rows.assign(half="text"),
        lambda rows: rows.number.tolist(),
    ]
    frame = Made(tmp_path).frame(4, lambda rows: liars[int(rows.number.iloc[0]) // ROWS](rows))
    result = job(frame, lambda rows: rows, tmp_path, client=client, allowed_failed_count=3)
    errors = result.failed["error"].tolist()
    assert "'third'" in errors[0]
    assert f"'half' is {dtype_of('str')} where float64 was announced" in errors[1]
    assert "it is a list where a pandas DataFrame was announced" in errors[2]
    assert text_of(result) == FRAME[:5].to_csv(sep=" ", header=False, index=False)


@pytest.mark.long
def test_a_future_that_is_cancelled_before_its_length_is_known_fails_as_a_whole(
    tmp_path: Path, client: Client
) -> None:
    """Before the job, or before its turn: it is one mini-batch, since there is nothing to cut."""
    gate = tmp_path / "gate"
    # On one worker, they are staged in their order: eight of them before the first slot is free.
    one, _ = client.nthreads()
    futures = [client.submit(list, [n, n], pure=False, workers=[one]) for n in range(12)]
    assert poll_for(lambda: all(future.done() for future in futures), LONGEST_S)
    client.cancel(futures[:1])
    run = daskprs.start(
        futures,
        waiting_for(gate),
        client=client,
        **options_in(tmp_path, mini_batch_size=1, allowed_failed_count=-1),
    )
    assert poll_for(lambda: run.progress.running >= 4, LONGEST_S)
    client.cancel(futures[11:])
    gate.touch()
    result = run.result(LONGEST_S)
    assert text_of(result).split() == [str(n) for n in range(1, 11) for _ in "12"]
    assert result.failed["label"].tolist() == ["partition 0", "partition 11"]
    assert "CancelledError" in result.failed["error"][0]


def test_a_future_that_is_cancelled_once_its_length_is_known_fails_in_each_mini_batch(
    tmp_path: Path, client: Client
) -> None:
    """They have their numbers and labels by then; those that wait for a slot fail."""
    gate = tmp_path / "gate"
    one, other = client.nthreads()
    futures = [
        client.submit(list, [n, n], pure=False, workers=[place])
        for n, place in enumerate([one, other, one])
    ]
    run = daskprs.start(
        futures,
        waiting_for(gate),
        client=client,
        **options_in(tmp_path, mini_batch_size=1, allowed_failed_count=-1),
    )
    assert poll_for(lambda: (run.progress.planned, run.progress.running) == (6, 4), LONGEST_S)
    client.cancel(futures[2:])
    gate.touch()
    result = run.result(LONGEST_S)
    assert text_of(result).split() == ["0", "0", "1", "1"]
    assert result.failed["label"].tolist() == [f"partition 2, items {n}-{n + 1}" for n in range(2)]
    assert "CancelledError" in result.failed["error"][0]


def waiting_for(gate: Path) -> Callable[[list[int]], list[int]]:
    """Return a `run` that waits for a file, and returns its items."""

    def wait_here(items: list[int]) -> list[int]:
        poll_for(gate.exists, LONGEST_S)
        return items

    return wait_here


# ---- workers that go ----


class Workers(ByHand):
    """A cluster of workers of one thread, of which some are struck."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1"})
        self._workers = [self.worker() for _ in range(2)]

    def replace_dead(self) -> None:
        """Start a worker in place of each that died."""
        self._workers = [self.worker() if one.poll() is not None else one for one in self._workers]

    def holders(self, client: Client) -> dict[str, list[int]]:
        """Return the partitions that each worker holds, by address."""
        held: dict[str, list[int]] = client.run_on_scheduler(
            lambda dask_scheduler: {
                address: [
                    task.key[1]
                    for task in worker.has_what
                    if str(task.key[0]).startswith("daskprs-partition")
                ]
                for address, worker in dask_scheduler.workers.items()
            }
        )
        return held


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    """Yield a cluster that ends with the test."""
    cluster = Workers(tmp_path)
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def their_client(workers: Workers) -> Iterator[Client]:
    """Yield a client of it."""
    with Client(workers.address, set_as_default=False) as client:
        client.wait_for_workers(2, LONGEST_S)
        yield client


@pytest.mark.long
def test_a_partition_that_kills_its_worker_fails_alone(
    tmp_path: Path, workers: Workers, their_client: Client
) -> None:
    """Its neighbours are computed, though they were on the same workers."""

    def part(number: int) -> list[int]:
        if number == 2:
            time.sleep(0.2)  # others wait behind it by now
            os._exit(1)
        return [number]

    parts = [delayed(part)(n) for n in range(8)]
    options = options_in(tmp_path, allowed_failed_count=1)
    run = daskprs.start(parts, lambda items: items, client=their_client, **options)
    while not run.wait(0.1):
        workers.replace_dead()
    result = run.result()
    assert result.failed["label"].tolist() == ["partition 2"]
    assert "KilledWorker" in result.failed["error"][0]
    assert text_of(result).split() == ["0", "1", "3", "4", "5", "6", "7"]


@pytest.mark.long
@pytest.mark.parametrize("how", ["killed", "retired"])
def test_a_worker_that_goes_costs_what_it_held(
    tmp_path: Path, workers: Workers, their_client: Client, how: str
) -> None:
    """Killed, its partitions are computed again; asked to leave, it hands them over."""
    client = their_client
    made, gate = Made(tmp_path), tmp_path / "gate"

    def gated(rows: pd.DataFrame) -> pd.DataFrame:
        poll_for(lambda: rows.number.iloc[0] < 2 * ROWS or gate.exists(), LONGEST_S)
        return rows

    options = options_in(tmp_path, mini_batch_size=80, max_node_losses=2)
    run = daskprs.start(made.frame(), gated, client=client, **options)
    assert poll_for(lambda: sum(map(len, workers.holders(client).values())) >= 4)
    assert poll_for(lambda: run.progress.running >= 2)
    victim, held = next(
        (address, held) for address, held in workers.holders(client).items() if held
    )
    if how == "killed":
        os.kill(client.run(os.getpid)[victim], signal.SIGKILL)
    else:
        client.retire_workers([victim])
    gate.touch()
    assert text_of(run.result(LONGEST_S)) == TEXT
    computed = Counter(made.times())
    again = {number for number, times in computed.items() if times > 1}
    assert computed.keys() == {*range(COUNT)}
    assert max(computed.values()) <= 2
    assert again <= (set(held) | {4, 5} if how == "killed" else {4, 5}), computed
