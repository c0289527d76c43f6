"""Graphs of collections, cut into the tasks of each partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask import delayed
from dask.core import get
from dask.utils import key_split
from distributed import Client, LocalCluster
from hypothesis import given
from hypothesis import strategies as st

from daskprs._cluster.connect import IN_PROCESS
from daskprs._inputs.collections.collection_graph import collection_graph
from daskprs._inputs.collections.opening import open_collection
from daskprs._inputs.collections.partition_graph import PartitionGraph
from daskprs._inputs.source.read_options import ReadOptions
from daskprs.errors import InputError, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PERSISTED = ("frame", "bag", "annotated bag")
FRAME = pd.DataFrame({"a": range(20), "b": np.arange(20) * 0.5})


def computed(graph: PartitionGraph) -> tuple[dict[int, Any], list[Any]]:
    """Compute the wanted partitions group by group, holding only what has to be held.

    Return them, and the keys of all tasks that ran.
    """
    partitions, ran = {}, []
    held: dict[Any, Any] = {}
    last: dict[Any, int] = {}
    for number in graph.wanted:
        group = graph.group(number)
        assert group.uses <= held.keys()
        results = dict(held)
        for key in _in_order(group.tasks):
            results[key] = group.tasks[key](results)
            ran.append(key)
        partitions[number] = results[group.output]
        held |= {key: results[key] for key in group.keeps}
        last |= group.keeps
        assert set(group.ends) == {key for key in held if last[key] == number}
        for key in group.ends:
            del held[key]
    assert not held
    return partitions, ran


def _in_order(tasks: dict[Any, Any]) -> Iterator[Any]:
    left = dict(tasks)
    while left:
        ready = [key for key, task in left.items() if left.keys().isdisjoint(task.dependencies)]
        for key in ready:
            del left[key]
        yield from ready


def joined(*values: Any) -> str:
    """Return values in a way that shows how they were made."""
    return f"({' '.join(map(str, values))})"


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[str, Any], list[str], list[int]]:
    """Make a graph without cycles, as Dask's old kind of tuples, its outputs, and some of these."""
    size = draw(st.integers(1, 12))
    tasks: dict[str, Any] = {}
    for n in range(size):
        names = [f"x{k}" for k in range(n)]
        below = draw(st.lists(st.sampled_from(names), max_size=3)) if names else []
        is_alias = draw(st.integers(0, 4)) == 0
        tasks[f"x{n}"] = below[0] if below and is_alias else (joined, n, *below)
    outputs = draw(st.lists(st.sampled_from(sorted(tasks)), max_size=6))
    wanted = draw(st.lists(st.sampled_from(range(len(outputs))), unique=True)) if outputs else []
    return tasks, outputs, wanted


@given(graphs())
def test_groups_compute_what_the_whole_graph_does(
    made: tuple[dict[str, Any], list[str], list[int]],
) -> None:
    """Each task that a partition needs runs once, whichever partitions are wanted."""
    tasks, outputs, wanted = made
    whole = PartitionGraph(tasks, outputs)
    for graph in (whole, whole.of(wanted)):
        partitions, ran = computed(graph)
        assert partitions == {n: get(tasks, outputs[n]) for n in graph.wanted}
        assert len(set(ran)) == len(ran)
    assert len(whole.of(wanted)) == len(outputs)


def collections() -> dict[str, Any]:
    """Return collections of each kind."""
    frame = dd.from_pandas(FRAME, npartitions=4)
    bag = db.from_sequence(range(10), npartitions=3).map(str)
    array = da.from_array(np.arange(24).reshape(6, 4), chunks=(2, 3))
    parts = [delayed(FRAME.head)(n, dask_key_name=f"head-{n}") for n in range(3)]
    return {
        "frame": frame.assign(c=frame.a + 1)[["c", "b"]],
        "series": frame.b,
        "difference": frame - frame.mean(),
        "tasks": frame.shuffle("a", shuffle_method="tasks"),
        "merged": frame.merge(frame, on="a", shuffle_method="tasks"),
        "repartitioned": frame.repartition(npartitions=3),
        "rolling": frame.rolling(3).sum(),
        "one": frame.groupby("a").sum(),
        "bag": bag,
        "annotated bag": _annotated(lambda: bag.map(len)),
        "array": array,
        "annotated array": _annotated(lambda: array + 1),
        "unknown chunks": array[:, 0][array[:, 0] > 5],
        "delayed": parts,
        "one delayed": parts[2],
        "twice": (parts[1], parts[1]),
    }


def partitions_of(data: Any) -> list[Any]:
    """Return the partitions of a collection, as Dask computes them."""
    if isinstance(data, da.Array):
        blocks = np.atleast_2d(data.to_delayed().T).T
        rows: Any = dask.compute(blocks.tolist())[0]
        return [np.hstack(row) for row in rows]
    if isinstance(data, dd.Series):
        data = data.to_frame()
    if isinstance(data, (dd.DataFrame, db.Bag)):
        data = data.to_delayed()
    return list(dask.compute(*data)) if isinstance(data, (list, tuple)) else [data.compute()]


def _annotated(make: Any) -> Any:
    with dask.annotate(priority=3):
        return make()


@pytest.mark.parametrize("name", sorted(collections()))
def test_a_collection_is_cut_into_its_partitions(name: str) -> None:
    """Partitions computed by group are those that Dask computes."""
    data = collections()[name]
    found, _ = computed(collection_graph(data).graph)
    wanted = partitions_of(data)
    assert len(found) == len(wanted)
    for one, other in zip(found.values(), wanted, strict=True):
        if isinstance(other, pd.DataFrame):
            pd.testing.assert_frame_equal(one, other)
        else:
            assert np.array_equal(_whole(one), _whole(other))


def _whole(partition: Any) -> Any:
    return partition if isinstance(partition, np.ndarray) else list(partition)


def test_a_partition_of_a_chain_is_one_task() -> None:
    """What Dask fuses stays together, and names that stand for others are left out."""
    frame = dd.from_map(FRAME.head, range(1, 5), meta=FRAME)
    bag = db.from_sequence(range(10), npartitions=3).map(str).filter(len)
    for data in (frame.assign(c=frame.a + 1), bag):
        graph = collection_graph(data).graph
        groups = [graph.group(n) for n in graph.wanted]
        assert [len(group.tasks) for group in groups] == [1] * len(groups)
        assert all(group.is_free for group in groups)


def test_only_what_any_worker_computes_as_well_is_free() -> None:
    """A partition whose data lies somewhere goes there; one that all need is made by all."""
    found = {name: collection_graph(data).graph for name, data in collections().items()}
    free = {name: [graph.group(n).is_free for n in graph.wanted] for name, graph in found.items()}
    assert free["difference"] == [False] * 4
    assert free["one"] == [False]
    shared = delayed(FRAME.sum)()
    frame = dd.from_pandas(FRAME, npartitions=4).map_partitions(_plus, shared, meta=FRAME)
    graph = collection_graph(frame).graph
    assert all(graph.group(n).is_free for n in graph.wanted)


def _plus(frame: pd.DataFrame, more: pd.Series) -> pd.DataFrame:
    return frame + more


def test_a_parquet_file_is_read_for_the_wanted_columns_alone(tmp_path: Path) -> None:
    """Projection reaches the task that reads."""
    FRAME.to_parquet(tmp_path / "one.parquet")
    data = dd.read_parquet(tmp_path)
    made = collection_graph(data, columns=["b"])
    assert list(made.meta.columns) == ["b"]
    assert [key_split(key) for key in made.graph.group(0).tasks] == ["read_parquet"]
    (partition,) = computed(made.graph)[0].values()
    assert list(partition.columns) == ["b"]


def _token(data: Any) -> str | None:
    return collection_graph(data).token


def test_a_token_says_how_a_collection_is_made() -> None:
    """Equal calls have equal tokens; random names have none."""
    one, other = ({name: _token(data) for name, data in collections().items()} for _ in range(2))
    assert one == other
    assert None not in one.values()
    assert len(set(one.values())) == len(one)
    pure = delayed(len, pure=True)
    assert _token(pure("abc")) == _token(pure("abc")) != _token(pure("abcd"))
    assert _token(delayed(len)("abc")) is None
    impure = [delayed(FRAME.head)(n) for n in range(3)]
    assert _token(dd.from_delayed(impure, meta=FRAME)) is None
    assert _token(db.from_delayed([delayed(list)("abc")]).map(str)) is None


def test_annotations_of_layers_and_of_the_call_are_kept() -> None:
    """A task's own annotation goes before those in force when the graph is made."""
    bag = db.from_sequence(range(4), npartitions=2)
    data = {
        "bag": _annotated(lambda: bag.map(str)),
        "array": _annotated(lambda: da.ones((4, 2), chunks=(2, 2))) + 1,
        "delayed": [_annotated(lambda: delayed(str)(1)), delayed(str)(2)],
        "frame": dd.from_pandas(FRAME, npartitions=2),
    }
    found = {}
    with dask.annotate(priority=1, workers=_worker_of):
        for name, one in data.items():
            graph = collection_graph(one).graph
            groups = [graph.group(n) for n in graph.wanted]
            found[name] = [group.annotations[group.output] for group in groups]
            assert all(set(group.annotations) == set(group.tasks) for group in groups)
    priorities = {name: [one["priority"] for one in own] for name, own in found.items()}
    assert priorities == {"bag": [3, 3], "array": [3, 3], "delayed": [3, 1], "frame": [1, 1]}
    assert {one["workers"] for own in found.values() for one in own} == {"alice"}


def _worker_of(_key: Any) -> str:
    return "alice"


def test_an_annotated_argument_leaves_the_task_that_takes_it_alone() -> None:
    """Dask keeps both in one layer."""
    inner = _annotated(lambda: delayed(str)(1))
    outer = delayed(str)(inner)
    group = collection_graph(outer).graph.group(0)
    assert group.annotations == {inner.key: {"priority": 3}}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (db.from_sequence([1]).sum(), r"cannot|can be cut.*Item"),
        (dd.from_pandas(FRAME, npartitions=1).index, "Index"),
        (dd.from_pandas(FRAME, npartitions=1).a.sum(), "Scalar"),
        (da.ones(()), "no rows"),
        ([delayed(len)(""), 3], "list"),
        ([], "list"),
    ],
)
def test_what_cannot_be_cut_is_refused(data: Any, says: str) -> None:
    """The error names the class."""
    with pytest.raises(InputError, match=says):
        collection_graph(data)


def test_blocks_that_cannot_be_joined_into_rows_are_refused() -> None:
    """Rows of unknown length across several blocks have no end."""
    array = da.from_array(np.arange(24).reshape(4, 6), chunks=(2, 3))
    with pytest.raises(InputError, match="compute_chunk_sizes"):
        collection_graph(array[:, array[0] > 1])


def test_columns_of_one_name_are_refused() -> None:
    """Rows could not be told apart by column."""
    twice = pd.concat([FRAME, FRAME], axis=1)
    with pytest.raises(OptionError, match="different names"):
        open_collection(dd.from_pandas(twice, npartitions=1), ReadOptions())


def test_what_a_cluster_has_is_used_in_place() -> None:
    """Persisted collections and lists of futures have no tasks, and no token."""
    with LocalCluster(threads_per_worker=2, **IN_PROCESS) as cluster, Client(cluster) as client:
        futures: Any = client.map(FRAME.head, [1, 2, 3])
        data: dict[str, Any] = {name: collections()[name].persist() for name in PERSISTED}
        array = da.ones((4, 2), chunks=(2, 2)).persist()
        data |= {"array": array, "futures": futures, "one": futures[0]}
        for name, one in data.items():
            made = collection_graph(one)
            groups = [made.graph.group(n) for n in made.graph.wanted]
            assert groups, name
            assert all(not group.tasks and not group.uses for group in groups), name
            assert [group.output for group in groups] == [group.future.key for group in groups]
            assert made.token is None, name
        more = collection_graph(data["frame"] + 1)
        assert more.graph.group(0).tasks
        assert more.graph.group(0).future is None
        assert not more.graph.group(0).is_free
        assert more.token is None
        mixed = collection_graph([delayed(len)("abc", dask_key_name="three"), futures[0]]).graph
        assert [bool(mixed.group(n).future) for n in range(2)] == [False, True]
