"""Partitions computed by a cluster, group by group, with the tasks that follow each."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask import delayed
from dask._task_spec import Task, TaskRef
from distributed import Client, LocalCluster, get_worker, worker_client

from daskprs._cluster.connect import IN_PROCESS
from daskprs._cluster.partition_tasks import submit_group
from daskprs._inputs.collections.collection_graph import collection_graph
from tests.support.cases import mostly_long
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from collections.abc import Iterator

FRAME = pd.DataFrame({"a": np.arange(60) % 7, "b": np.arange(60) * 0.5})
AHEAD = 3


@pytest.fixture
def client() -> Iterator[Client]:
    """Return the client of a cluster of two workers in this process, one of which has a device."""
    settings = {**IN_PROCESS, "n_workers": 2}
    with (
        LocalCluster(threads_per_worker=2, resources={"device": 1}, **settings) as cluster,
        Client(cluster) as client,
    ):
        yield client


def put(value: Any) -> tuple[Any, str]:
    """Return a partition, and where it is."""
    return list(value) if type(value).__name__ in {"map", "filter"} else value, get_worker().address


def put_all(client: Client, data: Any, name: str, **how: Any) -> list[tuple[Any, str]]:
    """Compute all partitions, a few at a time, holding only what has to be held."""
    graph = collection_graph(data).graph
    held: dict[Any, Any] = {}
    put_ahead: dict[int, Any] = {}
    found = []
    for number in [*graph.wanted, *[-1] * AHEAD]:
        if number >= 0:
            group = graph.group(number)
            key = (f"put-{name}", number)
            tail = {key: Task(key, put, TaskRef(group.output))}
            futures = submit_group(client, group, held, tail, [key, *group.keeps], **how)
            put_ahead[number] = futures.pop(key)
            held |= futures
        if put_ahead and (number < 0 or len(put_ahead) > AHEAD):
            first = min(put_ahead)
            found.append(put_ahead.pop(first).result(timeout=60))
            for key in graph.group(first).ends:
                del held[key]
    assert not held
    return found


def collections() -> dict[str, Any]:
    """Return collections whose partitions hang together in different ways."""
    frame = dd.from_pandas(FRAME, npartitions=6)
    other = frame.rename(columns={"b": "c"}).drop_duplicates("a")
    array = da.from_array(np.arange(48).reshape(8, 6), chunks=(2, 6))
    shared = delayed(dict)(a=1, b=2.0)
    return {
        "shuffled": frame.shuffle("a"),
        "shuffled by tasks": frame.shuffle("a", shuffle_method="tasks"),
        "merged": frame.merge(other, on="a"),
        "repartitioned": frame.repartition(npartitions=4),
        "difference": frame - frame.mean(),
        "rolling": frame.rolling(3).sum(),
        "shared": frame.map_partitions(lambda part, more: part + more["b"], shared, meta=FRAME),
        "persisted": frame.persist() + 1,
        "rechunked": array.rechunk((3, 3)),
        "bag": db.from_sequence(range(10), npartitions=3).map(str),
    }


IN_SUITE = ["bag", "merged", "rechunked", "shared", "shuffled"]


@pytest.mark.parametrize("name", mostly_long(sorted(collections()), suite=IN_SUITE))
def test_partitions_are_those_that_dask_computes(client: Client, name: str) -> None:
    """Shuffles too, whose tasks a plugin of Dask's moves from worker to worker."""
    worker = next(iter(client.nthreads()))
    with client.as_current():
        data = collections()[name]
        if name == "rechunked":
            wanted = [data[n : n + 3].compute() for n in (0, 3, 6)]
        else:
            wanted = list(dask.compute(*data.to_delayed()))
        found = [part for part, _ in put_all(client, data, name, workers=[worker])]
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        if isinstance(one, pd.DataFrame):
            pd.testing.assert_frame_equal(_sorted(one), _sorted(other))
        else:
            assert np.array_equal(one, list(other))


def _sorted(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a shuffle, which come in any order, in one order."""
    return frame.sort_values(list(frame.columns), ignore_index=True)


def test_nothing_is_left_on_the_cluster(client: Client) -> None:
    """What is not held is forgotten."""
    put_all(client, dd.from_pandas(FRAME, npartitions=6).shuffle("a"), "left")
    scheduler: Any = client.cluster.scheduler  # type: ignore[union-attr]
    assert poll_for(lambda: not any(task.state == "memory" for task in scheduler.tasks.values()))


def test_a_partition_is_computed_where_the_caller_says(client: Client) -> None:
    """Its tail follows it; partitions whose data lies somewhere go there."""
    frame = dd.from_map(FRAME.head, range(1, 9), meta=FRAME)
    workers = list(client.nthreads())
    for worker in workers:
        at = {place for _, place in put_all(client, frame, f"at {worker}", workers=[worker])}
        assert at == {worker}
    gone = put_all(client, frame, "gone", workers=["tcp://127.0.0.1:1"])
    assert len(gone) == frame.npartitions


def where(_: int) -> str:
    """Return where a task runs."""
    return str(get_worker().address)


def test_the_users_own_place_goes_before_that_of_the_caller(client: Client) -> None:
    """So do resources and priority; the scheduler has all of them."""
    one, other = client.nthreads()
    scheduler: Any = client.cluster.scheduler  # type: ignore[union-attr]
    with dask.annotate(workers=[one], priority=7, retries=2):
        bound = delayed(where)(1)
    with dask.annotate(resources={"device": 1}):
        device = delayed(where)(2)
    graph = collection_graph([bound, device, delayed(where)(3)]).graph
    futures = {}
    for number in graph.wanted:
        group = graph.group(number)
        tail = {f"t{number}": Task(f"t{number}", str, TaskRef(group.output))}
        wanted = [group.output, f"t{number}"]
        futures |= submit_group(client, group, {}, tail, wanted, [other])
    assert [futures[graph.group(n).output].result(timeout=60) for n in (0, 2)] == [one, other]
    first, second, third = (scheduler.tasks[graph.group(n).output] for n in graph.wanted)
    assert first.worker_restrictions == {one}
    assert not first.loose_restrictions
    assert first.annotations["retries"] == 2
    assert second.resource_restrictions == {"device": 1}
    assert not second.worker_restrictions
    assert third.worker_restrictions == {other}
    assert third.loose_restrictions
    assert [task.priority[0] for task in (first, second, third)] == [-7, 0, 0]
    assert [scheduler.tasks[f"t{n}"].priority[0] for n in graph.wanted] == [-8, -1, -1]


def test_any_thread_may_submit_and_any_task(client: Client) -> None:
    """A job may run inside a task."""
    bag = db.from_sequence(range(10), npartitions=3)

    def inside() -> list[Any]:
        with worker_client() as inner:
            return [part for part, _ in put_all(inner, bag, "inside")]

    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(put_all, client, bag, "thread").result(timeout=60)
    parts = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [list(part) for part, _ in found] == parts
    assert client.submit(inside).result(timeout=60) == parts


def fail(_: Any) -> Any:
    """Raise an error."""
    msg = "no such row"
    raise LookupError(msg)


def test_an_error_reaches_all_partitions_that_need_the_task(client: Client) -> None:
    """Also those that are submitted when it has failed."""
    bad = delayed(fail)(0)
    graph = collection_graph([delayed(str)(bad), delayed(repr)(bad)]).graph
    held: dict[Any, Any] = {}
    for number in graph.wanted:
        group = graph.group(number)
        futures = submit_group(client, group, held, {}, [group.output, *group.keeps])
        with pytest.raises(LookupError, match="no such row"):
            futures.pop(group.output).result(timeout=60)
        held |= futures


def test_what_is_not_held_is_missed(client: Client) -> None:
    """Dask would wait for ever, or cancel the partition without a reason."""
    shared = delayed(str)(1)
    graph = collection_graph([delayed(str)(shared), delayed(repr)(shared)]).graph
    with pytest.raises(ValueError, match="partition 1 needs the futures of"):
        submit_group(client, graph.group(1), {}, {}, [])
