"""Staged partitions: what `run` gets is what the collection holds."""

from __future__ import annotations

import datetime as dt
import os
import pickle
import subprocess
import sys
import tempfile
import textwrap
import threading
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from dask import delayed
from hypothesis import given
from hypothesis import strategies as st

from daskprs._agent.child.failure import failure_of
from daskprs._core.limits import Limits
from daskprs._core.mini_batch import MiniBatch
from daskprs._inputs.collections.collection_graph import collection_graph
from daskprs._inputs.collections.partition_table import NOT_COMPUTED, PartitionCut
from daskprs._inputs.collections.source import CollectionSource
from daskprs._inputs.collections.staged_reader import StagedReader, append_reader
from daskprs._inputs.collections.staging import StagedPartition, staged
from daskprs._inputs.collections.staging_form import (
    StagingForm,
    form_of_arrays,
    form_of_frames,
    form_of_objects,
)
from daskprs._inputs.source.batch_format import BatchForm, rows_in
from daskprs._inputs.source.pieces import PartitionSlice, StagedPiece, Uncomputed
from daskprs._inputs.source.read_options import ReadOptions
from daskprs._system.masks import mask_of
from daskprs.errors import InputError, JobFolderError, LoadError, OptionError
from tests.support.canary import Canary
from tests.support.cases import few_examples
from tests.support.frames_of_all_kinds import frames
from tests.support.versions import TEXT, dtype_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs._inputs.source.read_options import BatchFormat

SIZES = st.sampled_from([None, 1, 100, 10**6])


def run_sees(
    value: Any, form: StagingForm, batch_format: BatchFormat = "pandas", number: int = 0
) -> list[Any]:
    """Return the mini-batches of a partition, read where it was staged and on another node."""
    with tempfile.TemporaryDirectory() as here, tempfile.TemporaryDirectory() as there:
        partition = staged(value, number, form, Path(here))
        moved = pickle.loads(pickle.dumps(partition))
        batches = list(_loaded(partition, Path(here), batch_format))
        for one, other in zip(batches, _loaded(moved, Path(there), batch_format), strict=True):
            _assert_same(one, other)
        # What has been read stays, though its file has gone.
        del partition, moved
        assert not [*Path(here).iterdir(), *Path(there).iterdir()]
    return batches


def _assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, pd.DataFrame):
        pd.testing.assert_frame_equal(one, other)
    else:
        assert repr(one) == repr(other)


def _loaded(
    partition: StagedPartition, folder: Path, batch_format: BatchFormat = "pandas"
) -> Iterator[Any]:
    cut = partition.cut
    form = BatchForm(batch_format, {}, keeps_nan=True)
    with closing(pickle.loads(pickle.dumps(StagedReader()))) as reader:
        for index, (start, stop) in enumerate(cut.slices()):
            piece = pickle.loads(
                pickle.dumps(partition.placed(PartitionSlice(0, start, stop, cut.digest), folder))
            )
            rows = reader.load(MiniBatch(index, piece, "", stop - start, cut.size_bytes))
            yield rows if batch_format == "pandas" else form.of(rows)


# ---- frames ----


@few_examples(2)
@given(frames(), SIZES)
def test_a_frame_comes_back(frame: pd.DataFrame, size: int | None) -> None:
    """With its columns, types, order, and whatever stands for null."""
    form = form_of_frames(frame.iloc[:0], ReadOptions(mini_batch_size=size))
    seen = run_sees(frame, form)
    whole = frame.reset_index(drop=True)
    assert len(seen) == 1 or size is not None
    for one in seen:
        pd.testing.assert_series_equal(one.dtypes, whole.dtypes)
        assert list(one.index) == list(range(len(one)))
    made = pd.concat([one for one in seen if len(one)] or seen, ignore_index=True)
    pd.testing.assert_frame_equal(made, whole)
    for name in whole.columns[[dtype.kind == "O" for dtype in whole.dtypes]]:
        assert repr(list(made[name])) == repr(list(whole[name]))  # None, NaN, NA and NaT


def _cells(type_: pa.DataType, cells: st.SearchStrategy[Any]) -> st.SearchStrategy[pa.Array]:
    return st.lists(cells | st.none(), max_size=6).map(lambda drawn: pa.array(drawn, type_))


WORDS = st.text(max_size=3)
LONGS = st.integers(-(2**63), 2**63 - 1)
COLUMNS = [
    _cells(pa.int64(), LONGS),
    _cells(pa.uint8(), st.integers(0, 255)),
    _cells(pa.float64(), st.floats()),
    _cells(pa.float32(), st.floats(width=32)),
    _cells(pa.bool_(), st.booleans()),
    _cells(pa.string(), WORDS),
    _cells(pa.large_binary(), st.binary(max_size=3)),
    _cells(pa.decimal128(20, 3), st.decimals(-999, 999, places=3)),
    _cells(pa.date32(), st.dates()),
    _cells(pa.time64("us"), st.times()),
    _cells(pa.timestamp("us"), st.datetimes()),
    _cells(pa.timestamp("us", "Europe/Rome"), st.integers(0, 2**50)),
    _cells(pa.duration("us"), st.timedeltas(dt.timedelta(-(10**5)), dt.timedelta(10**5))),
    _cells(pa.list_(pa.int64()), st.lists(LONGS | st.none(), max_size=2)),
    _cells(pa.struct([("a", pa.int64()), ("b", pa.string())]), st.just({"a": 1, "b": None})),
    _cells(pa.map_(pa.string(), pa.float64()), st.dictionaries(WORDS, st.floats(), max_size=2)),
    _cells(pa.string(), st.sampled_from("xy")).map(pa.Array.dictionary_encode),
]


@few_examples(2)
@given(st.lists(st.sampled_from(COLUMNS).flatmap(lambda one: one), min_size=1, max_size=3), SIZES)
def test_types_of_arrow_come_back_in_each_format(columns: list[pa.Array], size: int | None) -> None:
    """A NaN is no null, and types do not depend on the rows of a mini-batch."""
    rows = min(map(len, columns))
    table = pa.table({f"c{place}": one[:rows] for place, one in enumerate(columns)})
    frame = table.to_pandas(types_mapper=pd.ArrowDtype)
    for batch_format in ("pandas", "pyarrow", "polars", "numpy"):
        reading = ReadOptions(mini_batch_size=size, batch_format=batch_format)
        seen = run_sees(frame, form_of_frames(frame.iloc[:0], reading), batch_format)
        match batch_format:
            case "pandas":
                pd.testing.assert_frame_equal(pd.concat(seen, ignore_index=True), frame)
            case "pyarrow":
                made = pa.concat_tables(seen)
                assert made.schema.types == table.schema.types
                assert repr(made.to_pydict()) == repr(table.to_pydict())
            case "polars":
                values = pl.concat(seen).to_arrow().to_pylist()
                assert repr(values) == repr(pl.from_arrow(table).to_arrow().to_pylist())
            case "numpy":
                assert sum(map(rows_in, seen)) == len(frame)
                start = 0
                for one in seen:  # pandas has lists of floats where one of their integers is null
                    part = frame[start : start + rows_in(one)]
                    for name, cells in one.items():
                        assert repr(list(cells)) == repr(list(part[name].to_numpy(object)))
                    start += len(part)


def test_categories_of_partitions_become_those_of_all() -> None:
    """Whatever their order; values that only partitions know are objects in each of them."""
    frame = pd.DataFrame({"a": ["x", "y", "x", None]})
    known = dd.from_pandas(frame.astype("category"), npartitions=2)
    meta = known._meta
    parts = [
        pd.DataFrame({"a": pd.Categorical(["y", None], ["y", "x"])}),
        pd.DataFrame({"a": pd.Categorical(["x"], ["x"])}),
        pd.DataFrame({"a": ["x", None]}),
    ]
    for part in parts:
        (seen,) = run_sees(part, form_of_frames(meta, ReadOptions()))
        assert seen["a"].dtype == meta["a"].dtype
        assert list(seen["a"].fillna("x")) == list(part["a"].fillna("x"))
    unknown = form_of_frames(known.categorize().a.cat.as_unknown().to_frame()._meta, ReadOptions())
    numbers = pd.DataFrame({"a": pd.Categorical([2**60 + 1, None])})
    for part in [*parts, numbers]:
        (seen,) = run_sees(part, unknown)
        assert seen["a"].dtype == object
        assert repr(list(seen["a"])) == repr(list(part["a"].astype(object)))
    text = form_of_frames(unknown.meta, ReadOptions(dtypes={"a": "str"}))
    assert [run_sees(part, text)[0]["a"].dtype for part in parts] == [dtype_of("str")] * 3


class Lies(NamedTuple):
    """A partition that is not as announced, and what is said of it."""

    value: Any
    meta: pd.DataFrame
    message: str


NUMBERS = pd.DataFrame({"a": pd.Series([], dtype="int64")})
KINDS = pd.DataFrame({"a": pd.Categorical([], ["x", "y"])})
LIES = {
    "no frame": Lies([1], NUMBERS, "it is a list where a pandas DataFrame was announced"),
    "a Series": Lies(pd.Series([1]), NUMBERS, "it is a pandas.Series where a pandas"),
    "other columns": Lies(
        pd.DataFrame({"b": [1]}), NUMBERS, r"columns \['b'\] where \['a'\] were announced"
    ),
    "a column twice": Lies(
        pd.DataFrame([[1, 2]], columns=["a", "a"]), NUMBERS, r"columns \['a', 'a'\] where"
    ),
    "floats": Lies(
        pd.DataFrame({"a": [1.5]}),
        NUMBERS,
        "'a' is float64 where int64 was announced: a value would change, got 1.5",
    ),
    "text": Lies(
        pd.DataFrame({"a": ["x"]}),
        NUMBERS,
        "'a' is (str|object) where int64 .* no conversion from (large_)?string to int64",
    ),
    "mixed objects": Lies(
        pd.DataFrame({"a": [1, "x"]}),
        pd.DataFrame({"a": pd.Series([], dtype=TEXT)}),
        f"'a' is object where {TEXT} was announced: a value would change, got 1, ",
    ),
    "a number as a category of text": Lies(
        pd.DataFrame({"a": pd.Categorical(["007"])}), NUMBERS, "'a' is category where int64"
    ),
    "a time that would be cut": Lies(
        pd.DataFrame({"a": pd.to_datetime(["2026-01-01 12:00:00.0000001"])}),
        pd.DataFrame({"a": pd.Series([], dtype="datetime64[s]")}),
        "where datetime64.s. was announced: a value would change",
    ),
    "a zone": Lies(
        pd.DataFrame({"a": pd.to_datetime(["2026-01-01"]).tz_localize("UTC")}),
        pd.DataFrame({"a": pd.Series([], dtype="datetime64[ns]")}),
        "'a' is datetime64.*UTC. where datetime64.ns. was announced",
    ),
    "another category": Lies(
        pd.DataFrame({"a": pd.Categorical(["x", "z"])}),
        KINDS,
        r"announced: \['z'\] are none of the announced categories. Give the collection the meta",
    ),
    "decimals that would be rounded": Lies(
        pd.DataFrame({"a": [Decimal("1.234")]}),
        pd.DataFrame({"a": pd.Series([], dtype=pd.ArrowDtype(pa.decimal128(5, 2)))}),
        "'a' is object where decimal128",
    ),
    "a lock": Lies(
        pd.DataFrame({"a": [1, threading.Lock()]}, dtype=object),
        pd.DataFrame({"a": pd.Series([], dtype=object)}),
        r"column 'a', row 1: the _thread.lock there cannot be sent .* make .* in init\(\)",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_partition_that_is_not_as_announced_is_an_error(lie: str, tmp_path: Path) -> None:
    """It has the number of the partition, and leaves no file; no value changes in silence."""
    value, meta, message = LIES[lie]
    with pytest.raises(LoadError, match=f"^partition 7: .*{message}"):
        staged(value, 7, form_of_frames(meta, ReadOptions()), tmp_path)
    assert not any(tmp_path.iterdir())


def test_types_that_hold_all_values_are_converted() -> None:
    """Integers where floats were announced, naive objects where text was."""
    meta = pd.DataFrame({"a": pd.Series([], dtype="float64"), "b": pd.Series([], dtype=TEXT)})
    part = pd.DataFrame({"a": [1, 2], "b": pd.Series(["x", None], dtype=object)})
    (seen,) = run_sees(part, form_of_frames(meta, ReadOptions()))
    pd.testing.assert_frame_equal(seen, part.astype({"a": "float64", "b": TEXT}))
    assert part.dtypes["a"] == "int64"  # the partition may be persisted


@pytest.mark.parametrize("batch_format", ["pandas", "pyarrow", "polars", "numpy"])
def test_an_empty_partition_is_an_empty_mini_batch(batch_format: BatchFormat) -> None:
    """With the columns and types of the others; it is not run."""
    meta = pd.DataFrame({"a": pd.Series([], dtype="int64"), "b": pd.Series([], dtype="str")})
    reading = ReadOptions(batch_format=batch_format, mini_batch_size=10)
    (seen,) = run_sees(meta, form_of_frames(meta, reading), batch_format)
    assert rows_in(seen) == 0
    names = {"pyarrow": "column_names", "polars": "columns"}.get(batch_format, "keys")
    found = getattr(seen, names)
    assert list(found() if callable(found) else found) == ["a", "b"]


def test_what_no_arrow_holds_names_its_partition(tmp_path: Path) -> None:
    """And a column that polars cannot hold is refused before anything is computed."""
    frame = pd.DataFrame({"a": [1, "x"]}, dtype=object)
    form = form_of_frames(frame.iloc[:0], ReadOptions(batch_format="pyarrow"))
    with pytest.raises(LoadError, match=r"^partition 3: .*column 'a' holds values that no type"):
        staged(frame, 3, form, tmp_path)
    wide = pd.DataFrame({"a": pd.Series([], dtype=pd.ArrowDtype(pa.decimal256(50, 2)))})
    with pytest.raises(InputError, match="which polars cannot hold"):
        form_of_frames(wide, ReadOptions(batch_format="polars"))


def test_labels_are_kept_where_they_are_wanted(tmp_path: Path) -> None:
    """Those that cannot be pickled do not stop a job."""
    frame = pd.DataFrame({"a": [1, 2]}, index=pd.Index(["x", "y"], name="k"))
    form = form_of_frames(frame, ReadOptions(keep_labels=True))
    labels = staged(frame, 0, form, tmp_path).labels
    pd.testing.assert_index_equal(labels, frame.index)
    frame.index = pd.Index([threading.Lock(), 1])
    assert "cannot pickle" in str(staged(frame, 0, form, tmp_path).labels)
    assert staged(frame, 0, form_of_frames(frame, ReadOptions()), tmp_path).labels is None


# ---- arrays ----

ARRAYS: dict[str, Any] = {
    "floats": np.array([[0.5, np.nan], [-0.0, np.inf], [1, 2]]),
    "another order of bytes": np.arange(3, dtype=">i4"),
    "columns first": np.asfortranarray(np.arange(12).reshape(4, 3)),
    "three axes": np.arange(24, dtype="int8").reshape(4, 3, 2),
    "no rows": np.zeros((0, 3), "float32"),
    "no columns": np.zeros((3, 0)),
    "times": np.array(["2026-01-01", "NaT"], "datetime64[D]"),
    "text": np.array(["a", "bc"]),
    "bytes": np.array([b"a", b"b\0c"]),
    "fields": np.array([(1, 2.5, "x"), (2, 3.5, "y")], [("a", "i4"), ("b", "f8"), ("c", "U1")]),
    "fields with gaps": np.zeros(3, np.dtype([("a", "i1"), ("b", "i8")], align=True)),
    "complex": np.array([1j, 2]),
    "objects": np.array([None, {"a": 1}, [2], "x"], object),
    "masked": np.ma.array([1, 2, 3], mask=[0, 1, 0]),
    "names in another script": np.zeros(2, [("\u03b1", "i4")]),
    "one row": np.ones((1, 5)),
}
if hasattr(np.dtypes, "StringDType"):
    ARRAYS["text of any length"] = np.array(["a", "bc"], np.dtypes.StringDType())


@pytest.mark.parametrize("size", [None, 1, 30])
@pytest.mark.parametrize("kind", ARRAYS)
def test_blocks_of_arrays_come_back(kind: str, size: int | None) -> None:
    """With their types; `run` may write into them, and the next attempt does not see it."""
    block = ARRAYS[kind]
    seen = run_sees(block, form_of_arrays(ReadOptions(mini_batch_size=size)))
    assert len(seen) == 1 or size is not None
    assert all(type(one) is type(block) and one.dtype == block.dtype for one in seen)
    assert sum(map(len, seen)) == len(block)
    start = 0
    for one in seen:
        assert repr(one) == repr(block[start : start + len(one)])
        start += len(one)


def test_what_run_writes_into_an_array_is_its_own(tmp_path: Path) -> None:
    """A retry begins with what the collection holds."""
    partition = staged(np.arange(4), 0, form_of_arrays(ReadOptions()), tmp_path)
    for _ in range(2):
        (seen,) = _loaded(partition, tmp_path)
        assert list(seen) == [0, 1, 2, 3]
        seen[:] = 7


@pytest.mark.parametrize("value", [[1, 2], np.float64(1), np.array(1)])
def test_what_is_no_block_is_an_error(value: Any, tmp_path: Path) -> None:
    """A number may be what is left of an array when a function took too much of it."""
    with pytest.raises(LoadError, match=r"^partition 2: it is a .* where a block of an array was"):
        staged(value, 2, form_of_arrays(ReadOptions()), tmp_path)


# ---- objects ----

FRAME = pd.DataFrame({"a": range(5)}, index=list("abcde"))
TABLE = pa.table({"a": range(5), "b": [[1], None, [], [2], [3]]})
OBJECTS: dict[str, tuple[Any, list[Any]]] = {
    "a list": ([1, "x", None, {"a": 1}, 5], [[1, "x"], [None, {"a": 1}], [5]]),
    "a tuple": ((1, 2, 3), [(1, 2), (3,)]),
    "an empty list": ([], [[]]),
    "a frame": (FRAME, [FRAME[:2], FRAME[2:4], FRAME[4:]]),
    "a Series": (FRAME["a"], [FRAME["a"][:2], FRAME["a"][2:4], FRAME["a"][4:]]),
    "a table": (TABLE, [TABLE[:2], TABLE[2:4], TABLE[4:]]),
    "a batch": (TABLE.to_batches()[0], [TABLE[at : at + 2].to_batches()[0] for at in (0, 2, 4)]),
    "a polars frame": (pl.DataFrame(TABLE), [pl.DataFrame(TABLE[at : at + 2]) for at in (0, 2, 4)]),
    "an array": (np.arange(5), [np.arange(2), np.arange(2, 4), np.arange(4, 5)]),
    "a dict": ({"a": [1, 2, 3]}, [{"a": [1, 2, 3]}]),
    "a number": (7, [7]),
    "text": ("many letters", ["many letters"]),
    "None": (None, [None]),
    "an array without axes": (np.array(3), [np.array(3)]),
    "a version": (sys.version_info[:2], [sys.version_info[:2]]),
}


@pytest.mark.parametrize("size", [None, 2, 100])
@pytest.mark.parametrize("kind", OBJECTS)
def test_objects_are_given_as_they_are(kind: str, size: int | None) -> None:
    """Lists are cut by count, tables by rows; any other object is one item."""
    value, cut = OBJECTS[kind]
    form = form_of_objects(ReadOptions(mini_batch_size=size), is_bag=False)
    seen = run_sees(value, form)
    expected = cut if size == 2 else [value]
    assert [type(one) for one in seen] == [type(one) for one in expected]
    assert [repr(one) for one in seen] == [repr(one) for one in expected]


@pytest.mark.parametrize(
    "value", [range(3), {"a": 0, "b": 1, "c": 2}.values(), (n for n in range(3)), {0, 1, 2}]
)
def test_partitions_of_a_bag_are_iterables(value: Any) -> None:
    """Whatever they are, `run` gets lists."""
    form = form_of_objects(ReadOptions(mini_batch_size=2), is_bag=True)
    assert run_sees(value, form) == [[0, 1], [2]]


def test_a_slice_of_a_table_does_not_hold_the_whole(tmp_path: Path) -> None:
    """Arrow's own pickles do."""
    table = pa.table({"a": range(100_000)})
    form = form_of_objects(ReadOptions(mini_batch_size=1_000), is_bag=False)
    assert staged(table, 0, form, tmp_path).cut.size_bytes < 2_000_000


def test_an_object_that_cannot_be_pickled_is_named(tmp_path: Path) -> None:
    """With its place in a list; a lambda can be."""
    form = form_of_objects(ReadOptions(), is_bag=True)
    with pytest.raises(LoadError, match=r"^partition 1: item 2, a _thread.lock, cannot be sent"):
        staged([1, 2, threading.Lock()], 1, form, tmp_path)
    ((function,),) = _loaded(staged([lambda: 5], 1, form, tmp_path), tmp_path)
    assert function() == 5


REFUSED = {
    "batch_format": {"batch_format": "polars"},
    "partition_keys": {"partition_keys": ("a",)},
    "dtypes": {"dtypes": {"a": "str"}},
    "columns": {"columns": ("a",)},
    "input_type": {"input_type": "files"},
}


@pytest.mark.parametrize("option", REFUSED)
def test_what_only_tables_have_is_refused(option: str) -> None:
    """For arrays and for objects, before anything is computed."""
    reading = ReadOptions(**REFUSED[option])  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=f"{option}=.*: not for an array, whose blocks"):
        form_of_arrays(reading)
    with pytest.raises(OptionError, match=f"{option}=.*: not for a collection of objects"):
        form_of_objects(reading, is_bag=False)
    with pytest.raises(OptionError, match="for items it is a count, such as 10"):
        form_of_objects(ReadOptions(mini_batch_size="10 MB"), is_bag=True)


# ---- files and digests ----

DIGESTS = """
    import pickle, sys, tempfile
    from pathlib import Path
    from tests.inputs.test_staging import digests
    print(digests(pickle.load(sys.stdin.buffer)))
"""


class Plain:
    """An object whose class agents import."""

    def __init__(self, name: str) -> None:
        self.names = [name, name]


def digests(values: list[Any]) -> list[str]:
    """Return the digests of values, as frames or objects."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for value in values:
            form = form_of_objects(ReadOptions(), is_bag=False)
            if isinstance(value, pd.DataFrame):
                form = form_of_frames(value.iloc[:0], ReadOptions())
            found.append(staged(value, 0, form, Path(folder)).cut.digest)
    return found


def test_digests_are_those_of_the_content() -> None:
    """Not of a process, nor of which values are one object; another value has another one."""
    name = "xaby"[1:3]  # another object
    values = [
        pd.DataFrame({"a": [1, 2], "b": ["x", None]}),
        pd.DataFrame({"a": ["ab", name, "ab"], "b": [[1], {"c": 2}, Plain("x")]}, dtype=object),
        np.arange(5.0),
        ["ab", "ab", Plain(name)],
        Decimal("1.5"),
    ]
    first = digests(values)
    shared = ["ab", name, Plain(name)]
    assert digests([shared]) == [first[3]]
    assert digests(pickle.loads(pickle.dumps(values))) == first
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    command = [sys.executable, "-c", textwrap.dedent(DIGESTS)]
    told = subprocess.run(
        command, input=pickle.dumps(values), stdout=subprocess.PIPE, env=environment, check=True
    )
    assert told.stdout.decode().strip() == repr(first)
    others = [pd.DataFrame({"a": [1, 3], "b": ["x", None]}), np.arange(5), ["ab", "ab"], [1], 1]
    assert len({*first, *digests(others)}) == 10


def test_classes_of_the_main_script_travel_along(tmp_path: Path) -> None:
    """Agents have another main script; the class has the same digest in each process."""
    code = """
        import pickle, sys, cloudpickle
        class Mine:
            def __init__(self, value):
                self.value = value
        sys.stdout.buffer.write(cloudpickle.dumps([Mine(5)]))
    """
    told = [
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, check=True
        ).stdout
        for _ in range(2)
    ]
    one, other = map(pickle.loads, told)
    form = form_of_objects(ReadOptions(), is_bag=True)
    ((seen,),) = _loaded(staged(one, 0, form, tmp_path), tmp_path)
    assert seen.value == 5
    assert digests([one]) == digests([other])


def test_a_partition_counts_for_what_it_holds_in_memory(tmp_path: Path) -> None:
    """Its rows lie in a file until it moves to another worker."""
    partition = staged(np.zeros(10**6), 0, form_of_arrays(ReadOptions()), tmp_path)
    assert sys.getsizeof(partition) < 5_000
    moved = pickle.loads(pickle.dumps(partition))
    assert sys.getsizeof(moved) > 8_000_000
    moved.placed(PartitionSlice(0, 0, 1, moved.cut.digest), tmp_path)
    assert sys.getsizeof(moved) < 5_000


# ---- what could not be computed ----


def _fail() -> None:
    msg = "the store is closed"
    raise ConnectionError(msg)


def test_the_original_error_is_what_the_log_shows() -> None:
    """Class, message and traceback; no retry is made."""
    try:
        _fail()
    except ConnectionError as error:
        piece = pickle.loads(pickle.dumps(Uncomputed.of(error, 4)))
    with pytest.raises(LoadError) as caught:
        StagedReader().load(MiniBatch(0, piece, ""))
    job = SimpleNamespace(mask=mask_of(), limits=Limits())
    failure = failure_of(caught.value, job)  # type: ignore[arg-type]
    assert (failure.kind, failure.retryable) == ("ConnectionError", False)
    assert failure.message == (
        "partition 4 of the collection cannot be computed: the store is closed. Try it alone: "
        "data.to_delayed()[4].compute(), or data[4] of a list."
    )
    assert "in _fail\n    raise ConnectionError(msg)" in failure.traceback
    ours = Uncomputed.of(LoadError("partition 4: it is a list"), 4)
    assert (ours.kind, ours.message) == ("LoadError", "partition 4: it is a list")


def test_rows_of_a_partition_that_is_another_now_are_refused(tmp_path: Path) -> None:
    """Dask computes a lost partition again; one without a seed has other rows then."""
    form = form_of_frames(pd.DataFrame({"x": [0]}), ReadOptions(mini_batch_size=8))
    before, now = (
        staged(pd.DataFrame({"x": [one, one]}), 3, form, tmp_path / str(one)) for one in (1, 2)
    )
    meant = before.cut.digest
    assert isinstance(before.placed(PartitionSlice(3, 1, 2, meant), tmp_path), StagedPiece)
    other = now.placed(PartitionSlice(3, 1, 2, meant), tmp_path)
    assert isinstance(other, Uncomputed)
    assert "partition 3 was computed again" in other.message
    assert isinstance(now.placed(PartitionSlice(3, 0, 2, meant), tmp_path), StagedPiece)


@pytest.mark.parametrize("batch_format", ["pandas", "pyarrow"])
def test_rows_have_one_digest_wherever_they_lie_in_memory(
    tmp_path: Path, batch_format: BatchFormat
) -> None:
    """Some of them, or a copy of those: a resume and another worker may have either."""
    whole = pd.DataFrame({"x": range(30), "name": [f"row {n}" for n in range(30)]})
    whole["flag"] = pd.array([True, None, False] * 10, "boolean")
    form = form_of_frames(whole[:0], ReadOptions(batch_format=batch_format))
    some = whole[7:12]
    copied = pickle.loads(pickle.dumps(some))
    digests = {staged(one, 0, form, tmp_path).cut.digest for one in (some, copied)}
    assert len(digests) == 1


@pytest.mark.attack
@pytest.mark.parametrize("place", ["rows", "reader"])
def test_a_staged_partition_that_was_changed_is_not_loaded(tmp_path: Path, place: str) -> None:
    """Its checksum is not in the file: it comes with the mini-batch."""
    form = form_of_objects(ReadOptions(mini_batch_size=1), is_bag=True)
    canary = tmp_path / "canary"
    partition = staged(["a" * 200, "b" * 200], 0, form, tmp_path)
    (file,) = tmp_path.iterdir()
    if place == "rows":
        with file.open("r+b") as changed:
            changed.write(pickle.dumps(Canary(canary)))
    else:
        append_reader(file, Canary(canary))  # type: ignore[arg-type]
    with pytest.raises(JobFolderError, match="not those that a worker of this job has written"):
        list(_loaded(partition, tmp_path))
    assert not canary.exists()


# ---- a replay ----


def _replayed(folder: Path, now: str, then: PartitionCut) -> tuple[list[str], str]:
    """Return the items of the last mini-batch of a Bag, whose one partition has these now."""
    place = folder / "items.txt"
    place.write_text(now)
    bag = db.from_delayed([delayed(_items, pure=True)(str(place))])
    form = form_of_objects(ReadOptions(mini_batch_size=2), is_bag=True)
    source = CollectionSource(collection_graph(bag), form, "item")
    source.open_table(folder)
    source.table.cuts[0] = then
    kept = source.kept_for({0} if then.failed else {2})
    kept.prepare(folder)
    *_, failed = kept.mini_batches()
    again, note = kept.computed_again(failed)
    items: list[str] = StagedReader().load(again)
    assert again.items == len(items)
    return items, note


def _items(place: str) -> list[str]:
    return Path(place).read_text().split()


@pytest.mark.parametrize("now", ["a b", "a b c d"])
def test_a_partition_with_fewer_items_is_replayed(tmp_path: Path, now: str) -> None:
    """The mini-batch has the last of them, where it has no items of its own any more."""
    items, note = _replayed(tmp_path, now, PartitionCut(5, 2, 13, "five items"))
    assert "has other rows than in the job" in note
    assert items == now.split()[-2:]


def test_a_partition_that_can_be_computed_now_is_replayed_as_it_is_cut(tmp_path: Path) -> None:
    """Its first mini-batch: it had none in the job."""
    items, note = _replayed(tmp_path, "a b c", NOT_COMPUTED)
    assert "can be now" in note
    assert items == ["a", "b"]
