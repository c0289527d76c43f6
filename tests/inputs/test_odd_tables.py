"""Tables of odd kinds: whatever the slice, the same rows, columns and types."""

from __future__ import annotations

import gc
import threading
import time
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dask import delayed
from pyarrow.dataset import dataset

import daskprs._inputs.keys.shuffle
from daskprs._arrow.arrow_pandas import ToPandas
from daskprs._inputs.open_source import open_source
from daskprs._inputs.source.read_options import ReadOptions
from daskprs.errors import InputError, LoadError, OptionError
from tests.support.put_together import together
from tests.support.versions import of_pandas_3

if TYPE_CHECKING:
    from pathlib import Path

SIZES = pytest.mark.parametrize("size", [1, 100, 10**6])


class Named(pd.DataFrame):
    """A frame that a library has made its own."""

    @property
    def _constructor(self) -> Any:
        return Named


CODED = pa.array(["y", "x", "z"] * 5).dictionary_encode()
FRAMES = {
    "two columns of one name": pd.DataFrame(np.arange(60).reshape(30, 2), columns=["a", "a"]),
    "columns of two levels": pd.DataFrame(
        np.arange(60).reshape(30, 2), columns=pd.MultiIndex.from_tuples([("a", 1), ("b", 2)])
    ),
    "columns with a name": pd.DataFrame({"a": range(30)}).rename_axis(columns="all"),
    "an index with a column's name": pd.DataFrame({"a": range(30)}, index=pd.Index([7] * 30)),
    "categories of intervals": pd.DataFrame({"a": pd.cut(np.arange(30), 3)}),
    "categories in their order": pd.DataFrame({"a": pd.Categorical([1, 2] * 15, [2, 1, 5])}),
    "lists of Arrow": pd.DataFrame(
        {"a": pd.Series([[1], None] * 15, dtype=pd.ArrowDtype(pa.list_(pa.int64())))}
    ),
    "sparse": pd.DataFrame({"a": pd.arrays.SparseArray([0, 1] * 15)}),
    "periods": pd.DataFrame({"a": pd.period_range("2020", periods=30, freq="M")}),
    "floats that are not there": pd.DataFrame({"a": [0.5, np.nan, -0.0] * 10}),
    "no columns": pd.DataFrame(index=range(30)),
    "a class of its own": Named({"a": range(30)}),
    "dictionaries of Arrow that differ": pd.DataFrame(
        {
            "a": pd.arrays.ArrowExtensionArray(
                pa.chunked_array([pa.array(["x"] * 15).dictionary_encode(), CODED])
            )
        }
    ),
}


@SIZES
@pytest.mark.parametrize("kind", FRAMES)
def test_any_frame_comes_back(tmp_path: Path, kind: str, size: int) -> None:
    """As `reset_index(drop=True)` gives it."""
    frame = FRAMES[kind]
    source = open_source(frame, ReadOptions(mini_batch_size=size))
    got = together(source, tmp_path)
    pd.testing.assert_frame_equal(got, frame.reset_index(drop=True))
    assert sum(one.items for one in source.mini_batches()) == len(frame)


@SIZES
def test_cells_are_the_same_as_well_as_equal(tmp_path: Path, size: int) -> None:
    """A decimal keeps its digits."""
    frame = pd.DataFrame({"a": pd.Categorical([Decimal("1.0"), Decimal(2), None])})
    got = together(open_source(frame, ReadOptions(mini_batch_size=size)), tmp_path)
    assert [*map(repr, got["a"])] == [*map(repr, frame["a"])]


VIEWS = pa.list_view(pa.int64())
TABLES = {
    "integers, one of them null": pa.table({"a": [1] * 20 + [None] + [2] * 20}),
    "booleans, one of them null": pa.table({"a": [True] * 20 + [None] + [False] * 20}),
    "dictionaries that differ": pa.table(
        {
            "a": pa.chunked_array(
                [pa.array(["x", "y"]).dictionary_encode(), pa.array(["z"]).dictionary_encode()]
            )
        }
    ),
    "decimals and structs": pa.table({"a": [Decimal("1.5"), None], "b": [{"c": 1}, {"c": 2}]}),
    "two columns of one name": pa.table([[1, None], [3, 4]], names=["a", "a"]),
    "a slice": pa.table({"a": range(1000)}).slice(500, 40),
    "views of lists": pa.table({"a": pa.array([[1], None, [2, 3], []] * 9, VIEWS)}),
    "views of lists in structs": pa.table(
        {"a": pa.array([{"b": [1]}, {"b": None}] * 9, pa.struct([("b", VIEWS)]))}
    ),
}


@SIZES
@pytest.mark.parametrize("kind", TABLES)
def test_any_arrow_table_is_what_pandas_makes_of_the_whole(
    tmp_path: Path, kind: str, size: int
) -> None:
    """A null anywhere types its column everywhere."""
    got = together(open_source(TABLES[kind], ReadOptions(mini_batch_size=size)), tmp_path)
    pd.testing.assert_frame_equal(got, TABLES[kind].to_pandas())


NOT_IN_PANDAS = {
    "a null as a category": pa.array(["a", None]).dictionary_encode("encode"),
    "a category twice": pa.DictionaryArray.from_arrays([0, 1], ["a", "a"]),
    "nanoseconds of a time": pa.array([1, 2], pa.time64("ns")),
}


@pytest.mark.parametrize("kind", NOT_IN_PANDAS)
def test_a_column_that_pandas_cannot_hold_is_named(tmp_path: Path, kind: str) -> None:
    """With a form that can."""
    table = pa.table({"n": [1, 2], "a": NOT_IN_PANDAS[kind]})
    with pytest.raises((InputError, LoadError), match=r"column 'a' is .*batch_format='pyarrow'"):
        together(open_source(table, ReadOptions()), tmp_path)


def test_the_type_that_holds_a_large_number_is_named() -> None:
    """Of numbers without a sign it is another."""
    with pytest.raises(InputError, match=r"dtypes=\{'a': 'UInt64'\}"):
        open_source(pa.table({"a": pa.array([2**64 - 1, None], pa.uint64())}), ReadOptions())


def test_an_index_in_an_arrow_table_is_a_column(tmp_path: Path) -> None:
    """As it is in Parquet; one without a name is left out."""
    named = pa.Table.from_pandas(pd.DataFrame({"a": [1, 2]}, index=pd.Index(["x", "y"], name="k")))
    got = together(open_source(named, ReadOptions(mini_batch_size=1)), tmp_path)
    pd.testing.assert_frame_equal(got, pd.DataFrame({"a": [1, 2], "k": ["x", "y"]}))
    unnamed = pa.Table.from_pandas(pd.DataFrame({"a": [1, 2]}, index=["x", "y"]))
    got = together(open_source(unnamed, ReadOptions(mini_batch_size=1)), tmp_path)
    pd.testing.assert_frame_equal(got, pd.DataFrame({"a": [1, 2]}))


def test_a_table_that_is_written_is_let_go(tmp_path: Path) -> None:
    """A source holds no memory of rows that lie in its file."""
    before = pa.total_allocated_bytes()
    table = pa.table({"a": pa.array(range(1_000_000)), "b": pa.nulls(1_000_000, pa.string())})
    source = open_source(table, ReadOptions())
    del table
    assert pa.total_allocated_bytes() - before > 8_000_000
    source.prepare(tmp_path)
    gc.collect()
    assert pa.total_allocated_bytes() - before < 100_000


PARQUET = {
    "a boolean null in one file": [pa.table({"a": [True, False]}), pa.table({"a": [None, True]})],
    "a file of nulls": [pa.table({"a": [1, 2]}), pa.table({"a": pa.nulls(2)})],
    "another order": [pa.table({"a": [1], "b": ["x"]}), pa.table({"b": ["y"], "a": [2]})],
    "wider integers": [pa.table({"a": pa.array([1], pa.int8())}), pa.table({"a": [2**40]})],
    "a name with a dot": [pa.table({"a.x": [1, None], "a": [{"x": 2}] * 2, "b": [3, 4]})],
    "no rows in one file": [pa.table({"a": [1]}), pa.table({"a": pa.array([], pa.int64())})],
    "long strings": [pa.table({"a": ["x"]}), pa.table({"a": pa.array(["y"], pa.large_string())})],
}


@SIZES
@pytest.mark.parametrize("kind", PARQUET)
def test_parquet_files_have_one_type_for_a_column(tmp_path: Path, kind: str, size: int) -> None:
    """That of all files together."""
    for number, table in enumerate(PARQUET[kind]):
        pq.write_table(table, tmp_path / f"{number}.parquet")
    expected = pa.concat_tables(PARQUET[kind], promote_options="permissive").to_pandas()
    got = together(open_source(tmp_path, ReadOptions(mini_batch_size=size)))
    pd.testing.assert_frame_equal(got, expected)


def test_files_may_disagree_on_columns_that_nobody_wants(tmp_path: Path) -> None:
    """With `columns`; a file without a wanted one is named."""
    pq.write_table(pa.table({"a": [1], "b": [2]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"c": [3], "a": [4]}), tmp_path / "1.parquet")
    got = together(open_source(tmp_path, ReadOptions(columns=("a",))))
    assert list(got["a"]) == [1, 4]
    with pytest.raises(InputError, match=r"1\.parquet lacks columns that .* has: b"):
        open_source(tmp_path, ReadOptions(columns=("b",)))


def test_a_plan_takes_time_by_the_number_of_columns(tmp_path: Path) -> None:
    """And not by its square, once for each file: a table of features may have thousands."""
    frame = pd.DataFrame(np.arange(6000).reshape(2, -1)).add_prefix("c")
    frame.to_parquet(tmp_path / "table.parquet")
    spent = [time.process_time()]
    for opens in (pd.read_parquet, lambda path: open_source(path, ReadOptions())):
        opens(tmp_path / "table.parquet")
        spent.append(time.process_time())
    read, planned = np.diff(spent)
    assert planned < 5 * read


def test_uuids_are_uuids_whoever_wrote_the_file(tmp_path: Path) -> None:
    """Other writers note them in Parquet alone; sixteen bytes stay bytes.

    Where Arrow, such as 21, makes bytes of both, files of both kinds are still one table.
    """
    stored = [uuid.UUID(int=1).bytes, None, uuid.UUID(int=2**127).bytes]
    columns = {"s": [{"x": 1}] * 3, "u": pa.array(stored, pa.uuid())}
    table = pa.table({**columns, "b": pa.array(stored, pa.binary(16))})
    for number, store_schema in enumerate((False, True)):
        pq.write_table(table, tmp_path / f"{number}.parquet", store_schema=store_schema)
    got = together(open_source(tmp_path, ReadOptions()))
    uuids = list(table["u"].to_pandas())
    assert (list(got["u"]), list(got["b"])) == (uuids * 2, stored * 2)


def test_a_file_with_another_type_is_named(tmp_path: Path) -> None:
    """The first one, with both types and a way out."""
    for number, values in enumerate([[1], [1.5], ["x"], ["y"]]):
        pq.write_table(pa.table({"a": values}), tmp_path / f"{number}.parquet")
    said = r"/2\.parquet and the files before it disagree .* a has .*: double vs string.* columns\."
    with pytest.raises(InputError, match=said):
        open_source(tmp_path, ReadOptions())


def test_an_integer_that_no_float_can_hold_is_named(tmp_path: Path) -> None:
    """With its file, its column and a way out, beside a null."""
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"a": [2**60 + 1, None]}), path)
    with pytest.raises(LoadError, match=r"table.parquet, row group 0, column 'a'.*'Int64'"):
        together(open_source(path, ReadOptions()))
    pd.DataFrame({"a": pd.array([2**60 + 1, None], dtype="Int64")}).to_parquet(path)
    assert list(together(open_source(path, ReadOptions()))["a"]) == [2**60 + 1, pd.NA]


@pytest.mark.parametrize("kind", ["Parquet", "Arrow", "keys"])
@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.list_(pa.int64()), [[2**60 + 1, None], None]),
        (pa.large_list(pa.list_(pa.uint64())), [[[2**63 + 1, None]], None]),
        (pa.list_(pa.int64(), 2), [[-(2**60) - 1, None], [1, 2]]),
        (pa.struct([("x", pa.struct([("y", pa.int64())]))]), [{"x": {"y": 2**60 + 1}}, None]),
        (pa.map_(pa.string(), pa.int64()), [[("x", 2**60 + 1), ("y", None)], []]),
    ],
    ids=str,
)
def test_large_integers_beside_nulls_in_nested_values_stay_integers(
    tmp_path: Path, kind: str, type_: pa.DataType, values: list[Any]
) -> None:
    """Floats, which pandas has there, would round them."""
    table = pa.table({"a": pa.array(values, type_), "k": [1, 1]})
    pq.write_table(table, tmp_path / "table.parquet")
    options = ReadOptions(partition_keys=("k",)) if kind == "keys" else ReadOptions()
    data = table if kind == "Arrow" else tmp_path / "table.parquet"
    (tmp_path / "scratch").mkdir()
    got = together(open_source(data, options), tmp_path / "scratch")
    assert pa.array(got["a"], type_).to_pylist() == values


def test_only_the_large_integers_of_the_mini_batch_itself_count() -> None:
    """Of a slice of maps, Arrow gives the items of all rows: to look at them takes its time."""
    maps = pa.array([[("x", 2**60 + 1)], [("x", 1), ("y", None)]], pa.map_(pa.string(), pa.int64()))
    table = pa.table({"a": maps})
    (row,) = ToPandas(table.schema.empty_table()).frame(table[1:])["a"]
    assert str(row) == "[('x', 1.0), ('y', None)]"


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.list_(pa.int64()), [1]),
        (pa.list_(pa.int64(), 2), [1, 2]),
        (pa.struct([("x", pa.int64()), ("y", pa.string())]), {"x": 1, "y": "z"}),
        (pa.map_(pa.string(), pa.int64()), [("x", 1)]),
        (pa.dictionary(pa.int32(), pa.string()), "x"),
    ],
    ids=str,
)
def test_types_that_pandas_wrote_and_cannot_read_are_values(
    tmp_path: Path, type_: pa.DataType, value: Any
) -> None:
    """Its own Arrow types, in files of `DataFrame.to_parquet`, whatever their names hold."""
    column = pd.array([value, value], dtype=pd.ArrowDtype(type_))
    pd.DataFrame({"a": column}).to_parquet(tmp_path / "a.parquet")
    got = together(open_source(tmp_path, ReadOptions(mini_batch_size=1)))["a"]
    assert [list(one) if isinstance(value, list) else one for one in got] == [value, value]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (("Int64", [1]), ("float64", [0.5]), ("float64", [1, 0.5])),
        (("Int64", [1]), ("Float64", [0.5]), ("Float64", [1, 0.5])),
        (("Int32", [1]), ("Int64", [2**60 + 1]), ("Int64", [1, 2**60 + 1])),
    ],
)
def test_what_pandas_noted_in_one_file_is_not_said_of_another_type(
    tmp_path: Path, first: Any, second: Any, expected: Any
) -> None:
    """Integers that are nullable in the first file do not make those of floats."""
    for name, (dtype, values) in {"1": first, "2": second}.items():
        pd.DataFrame({"a": pd.array(values, dtype)}).to_parquet(tmp_path / f"{name}.parquet")
    got = together(open_source(tmp_path, ReadOptions()))
    pd.testing.assert_frame_equal(got, pd.DataFrame({"a": pd.array(expected[1], expected[0])}))


def test_values_of_folders_have_one_type(tmp_path: Path) -> None:
    """Numbers beside a null are floats, what is encoded is decoded, what is no number is text."""
    for folder in ("k=1/x=a%2Fb/y=²", "k=__HIVE_DEFAULT_PARTITION__/x=c/y=99999999999999999999"):
        (tmp_path / folder).mkdir(parents=True)
        pq.write_table(pa.table({"a": [1]}), tmp_path / folder / "0.parquet")
    got = together(open_source(tmp_path, ReadOptions()))
    expected = {"a": [1, 1], "k": [1, None], "x": ["a/b", "c"], "y": ["²", "99999999999999999999"]}
    pd.testing.assert_frame_equal(got, pd.DataFrame(expected).astype({"k": "float64"}))


def test_an_integer_of_a_folder_that_no_float_holds_is_text_beside_a_null(tmp_path: Path) -> None:
    """Else two folders would have the same number."""
    names = ["9007199254740992", "9007199254740993", "__HIVE_DEFAULT_PARTITION__"]
    for name in names:
        (tmp_path / f"k={name}").mkdir()
        (tmp_path / f"k={name}" / "0.csv").write_text("a\n1\n")
    got = together(open_source(tmp_path, ReadOptions()))
    assert got["k"].dropna().tolist() == names[:2]
    (tmp_path / f"k={names[2]}" / "0.csv").unlink()
    assert together(open_source(tmp_path, ReadOptions()))["k"].tolist() == [2**53, 2**53 + 1]


@SIZES
@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_columns_that_all_come_from_paths_have_a_value_for_each_row(
    tmp_path: Path, suffix: str, size: int
) -> None:
    """Nothing of the files is given, and only their rows are counted."""
    rows = pd.DataFrame({"a": [1, 2, 3], "b": ["x", None, "z"]})
    for year in (2020, 2021):
        folder = tmp_path / f"year={year}" / "month=5"
        folder.mkdir(parents=True)
        path = folder / f"rows{suffix}"
        if suffix == ".csv":
            rows.to_csv(path, index=False)
        elif suffix == ".jsonl":
            rows.to_json(path, orient="records", lines=True)
        else:
            rows.to_parquet(path)
    source = open_source(tmp_path, ReadOptions(mini_batch_size=size, columns=("month", "year")))
    expected = pd.DataFrame({"month": [5] * 6, "year": [2020] * 3 + [2021] * 3})
    assert list(source.columns) == ["month", "year"]
    pd.testing.assert_frame_equal(together(source), expected)
    pd.testing.assert_frame_equal(source.meta(), expected[:0])


KEYS = {
    "zeros of Arrow": pd.Series([0.0, -0.0, None] * 3, dtype="double[pyarrow]"),
    "half floats": pd.Series([0.0, -0.0, np.nan] * 3, dtype="float16"),
    "tuples": pd.Series([(1, float("nan")), (1, float("nan")), None] * 3, dtype=object),
}


@pytest.mark.parametrize("part_bytes", [1, 64 << 20])
@pytest.mark.parametrize("kind", KEYS)
def test_keys_that_are_equal_are_one(
    tmp_path: Path, kind: str, part_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In however many parts the rows are brought together."""
    monkeypatch.setattr(daskprs._inputs.keys.shuffle, "PART_BYTES", part_bytes)
    frame = pd.DataFrame({"key": KEYS[kind], "row": range(9)})
    source = open_source(frame, ReadOptions(partition_keys=("key",)))
    source.prepare(tmp_path)
    reader = source.reader()
    rows = [list(reader.load(one)["row"]) for one in source.mini_batches()]
    assert rows == [[0, 1, 3, 4, 6, 7], [2, 5, 8]]


UNPICKLABLE: dict[str, Any] = {
    "lock": threading.Lock(),
    "generator": (number for number in range(1)),
    "function": lambda: None,
}


@pytest.mark.parametrize("kind", UNPICKLABLE)
@pytest.mark.parametrize("rows", [0, 5_000])
def test_a_cell_that_cannot_travel_is_named(tmp_path: Path, kind: str, rows: int) -> None:
    """With its column, its row and its class: in the first rows before the job has a folder."""
    frame = pd.DataFrame({"n": range(rows + 1), "o": [1] * rows + [UNPICKLABLE[kind]]})
    message = rf"data: column 'o', row {rows}: the .*{kind} there cannot be sent .* in init\(\)"
    with pytest.raises(InputError, match=message):
        open_source(frame, ReadOptions(mini_batch_size=100)).prepare(tmp_path)


def _third_fails(number: int) -> Any:
    if number == 2:
        msg = "the store is closed"
        raise ConnectionError(msg)
    return pd.DataFrame({"a": [number]})


def _third_is_a_list(number: int) -> Any:
    return [number] if number == 2 else pd.DataFrame({"a": [number]})


def _third_lacks_a_column(number: int) -> Any:
    return pd.DataFrame({"b" if number == 2 else "a": [number]})


PARTITIONS: dict[str, tuple[Any, str]] = {
    "raises": (_third_fails, "ConnectionError: partition 2 .* cannot be computed: the store is cl"),
    "is no frame": (_third_is_a_list, "partition 2: it is a list where a pandas DataFrame"),
    "lacks a column": (
        _third_lacks_a_column,
        r"partition 2: it has the columns \['b'\] where \['a'\]",
    ),
}


@pytest.mark.parametrize("case", PARTITIONS)
@pytest.mark.parametrize("keys", [(), ("a",)])
def test_a_partition_that_cannot_be_had_is_named(
    tmp_path: Path, case: str, keys: tuple[str, ...]
) -> None:
    """By its number, with the error that computing it raised."""
    make, message = PARTITIONS[case]
    parts = [delayed(make)(number) for number in range(4)]
    frame = dd.from_delayed(parts, meta={"a": "int64"}, verify_meta=False)
    source = open_source(frame, ReadOptions(partition_keys=keys))
    with pytest.raises(LoadError, match=message):
        source.prepare(tmp_path)


def test_a_bag_that_cannot_be_computed_is_named() -> None:
    """Before anything starts."""
    bag = db.from_sequence([1], npartitions=1).map(lambda _: _third_fails(2))
    with pytest.raises(InputError, match=r"partition 0 .* cannot be computed: ConnectionError"):
        open_source(bag, ReadOptions())


def test_data_of_another_package_is_named_with_the_package() -> None:
    """Several packages have a class of one name."""
    ray = type("Dataset", (), {"__module__": "ray.data.dataset", "to_pandas": len})()
    with pytest.raises(InputError, match=r"data: a ray\.Dataset cannot be .*its to_pandas\(\)"):
        open_source(ray, ReadOptions())


def test_groups_of_a_frame_name_the_option_for_keys() -> None:
    """The frame itself is the input."""
    with pytest.raises(InputError, match=r"DataFrameGroupBy cannot be cut .* as partition_keys"):
        open_source(pd.DataFrame({"a": [1]}).groupby("a"), ReadOptions())


@pytest.mark.parametrize(
    ("data", "way"),
    [
        ([pd.DataFrame({"a": [1]})], "Put frames together by pandas.concat"),
        ((frame for frame in []), "Put frames together by pandas.concat"),
        (np.zeros((2, 2)), "Make a frame of it by pandas.DataFrame"),
        (np.zeros(2, [("a", "i8")]).view(np.recarray), "Make a frame of it by pandas.DataFrame"),
        (pd.Index([1]), r"Convert it by its to_frame\(\)"),
        (dataset(pa.table({"a": [1]})), r"Convert it by its to_table\(\)"),
    ],
)
def test_what_may_become_a_frame_names_the_way(data: Any, way: str) -> None:
    with pytest.raises(InputError, match=rf"cannot be cut into mini-batches\. .* {way}\."):
        open_source(data, ReadOptions())


def test_what_cannot_be_a_key_is_refused(tmp_path: Path) -> None:
    """Before the first mini-batch, by name."""
    frame = pd.DataFrame({7: [1, 2], "twice": [[1], [2]]})
    with pytest.raises(OptionError, match="no column '7'"):
        open_source(frame, ReadOptions(partition_keys=("7",)))
    with pytest.raises(OptionError, match="more than one column 'twice'"):
        open_source(pd.concat([frame, frame], axis=1), ReadOptions(partition_keys=("twice",)))
    with pytest.raises(LoadError, match="a list cannot be a key"):
        open_source(frame, ReadOptions(partition_keys=("twice",))).prepare(tmp_path)
    reading = ReadOptions(partition_keys=("a",), batch_format="pyarrow")
    moment = pa.table({"a": pa.array([1], pa.time64("ns"))})
    with pytest.raises(LoadError, match=r"partition_keys: the column 'a' is time64\[ns\]"):
        open_source(moment, reading).prepare(tmp_path)


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (bytes(16), pa.uuid()),
        of_pandas_3((1, 2, 3), pa.month_day_nano_interval(), why="it is a key"),
    ],
)
def test_a_type_that_pandas_cannot_group_is_refused_as_a_key(
    tmp_path: Path, value: Any, type_: pa.DataType
) -> None:
    chunks = pa.chunked_array([pa.array([value], type_)])
    frame = pd.DataFrame({"a": pd.arrays.ArrowExtensionArray(chunks)})
    with pytest.raises(LoadError, match=r"'a', .*cannot be (a key|keys): "):
        open_source(frame, ReadOptions(partition_keys=("a",))).prepare(tmp_path)


def test_text_that_is_not_utf8_is_a_key(tmp_path: Path) -> None:
    """A name of a file, say."""
    frame = pd.DataFrame({"a": pd.Series(["\udcff", "b", "\udcff", None], dtype=object)})
    source = open_source(frame, ReadOptions(partition_keys=("a",)))
    source.prepare(tmp_path)
    assert [one.items for one in source.mini_batches()] == [2, 1, 1]


LARGE = 2**60 + 1
WITH_NULLS: dict[str, Any] = {
    "Parquet": pa.table({"id": [3, LARGE, None], "x": [1.5, None, 2.5]}),
    "Arrow": pa.table({"id": [3, LARGE, None], "x": [1.5, None, 2.5]}),
    "pandas": pd.DataFrame({"id": pd.Series([3, LARGE, None], dtype=object)}),
    "dask": pd.DataFrame({"id": pd.array([3, LARGE, None], "Int64")}),
}


def _as_input(kind: str, folder: Path) -> Any:
    """Return rows as an input of a kind, in several files or partitions where there can be."""
    rows = WITH_NULLS[kind]
    if kind == "dask":
        return dd.from_pandas(rows, npartitions=2)
    if kind == "Parquet":
        for place in range(3):
            pq.write_table(rows.slice(place, 1), folder / f"{place}.parquet")
    return folder if kind == "Parquet" else rows


@SIZES
@pytest.mark.parametrize("dtype", ["Int64", "int64[pyarrow]"])
@pytest.mark.parametrize("kind", ["Parquet", "Arrow", "pandas", "dask"])
def test_large_integers_beside_nulls_are_readable(
    tmp_path: Path, kind: str, size: int, dtype: str
) -> None:
    """By a type that is asked for, the same in each mini-batch; no float holds them."""
    data = _as_input(kind, tmp_path)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    got = together(
        open_source(data, ReadOptions(mini_batch_size=size, dtypes={"id": dtype})), scratch
    )
    pd.testing.assert_series_equal(got["id"], pd.Series([3, LARGE, None], dtype=dtype, name="id"))
    if "x" in got:
        assert got["x"].dtype == "float64"


@pytest.mark.parametrize("kind", ["Parquet", "Arrow", "pandas", "dask"])
def test_a_value_that_would_change_is_refused(tmp_path: Path, kind: str) -> None:
    """Nothing is wrapped around, rounded or filled in."""
    data = _as_input(kind, tmp_path)
    with pytest.raises((InputError, LoadError), match=r"column 'id'"):
        together(open_source(data, ReadOptions(dtypes={"id": "UInt8"})), tmp_path)


CHANGING: dict[str, tuple[Any, str]] = {
    "text to integers": (pa.array(["8", "007"]), "Int64"),
    "a category to integers": (pa.array(["8", "007"]).dictionary_encode(), "Int64"),
    "integers to booleans": (pa.array([1, 2, 0]), "boolean"),
    "floats to booleans": (pa.array([1.5, 0.0]), "boolean"),
    "no number to booleans": (pa.array([float("nan"), 0.0]), "boolean"),
    "floats beyond shorter ones": (pa.array([1.0, 1e300]), "float32"),
    "decimals to floats": (pa.array([Decimal("1.1234567890123456789")]), "float64"),
}


@pytest.mark.parametrize("kind", ["Parquet", "Arrow"])
@pytest.mark.parametrize("change", CHANGING)
def test_a_value_that_does_not_come_back_is_refused(tmp_path: Path, kind: str, change: str) -> None:
    """Though Arrow converts it without a word."""
    values, dtype = CHANGING[change]
    with pytest.raises((InputError, LoadError), match=r"column 'a' as \S+: a value would change"):
        _typed(kind, tmp_path, values, dtype)


COMING_BACK: dict[str, tuple[Any, str, list[Any]]] = {
    "text": (pa.array(["7", None]), "Int64", [7, pd.NA]),
    "zeros and ones": (pa.array([1, 0]), "boolean", [True, False]),
    "short floats": (pa.array([1.5, float("nan")]), "float32", [1.5, float("nan")]),
    "nulls": (pa.nulls(2), "Int64", [pd.NA, pd.NA]),
    "floats as text": (pa.array([0.25, 2.5]), "string", ["0.25", "2.5"]),
    "booleans as text": (pa.array([True, None]), "string", ["true", pd.NA]),
}


@pytest.mark.parametrize("kind", ["Parquet", "Arrow"])
@pytest.mark.parametrize("same", COMING_BACK)
def test_values_that_come_back_have_the_type_that_is_asked_for(
    tmp_path: Path, kind: str, same: str
) -> None:
    """NaN and null are what they were; text takes any value."""
    values, dtype, expected = COMING_BACK[same]
    got = _typed(kind, tmp_path, values, dtype)["a"]
    pd.testing.assert_series_equal(got, pd.Series(expected, dtype=dtype, name="a"))


def _typed(kind: str, folder: Path, values: Any, dtype: str) -> pd.DataFrame:
    """Return the values read as a type, out of a table or a file."""
    table = pa.table({"a": values})
    path = folder / "a.parquet"
    pq.write_table(table, path)
    data = path if kind == "Parquet" else table
    return together(open_source(data, ReadOptions(dtypes={"a": dtype})), folder)


@pytest.mark.parametrize("kind", ["Parquet", "Arrow", "pandas"])
@pytest.mark.parametrize(
    ("dtypes", "message"),
    [
        ({"id": "int64"}, "the column 'id', holds no null, and the column has some. Say 'Int64'"),
        ({"id": "category"}, r"'category', given for the column 'id', is none of the types"),
        ({"id": "int65"}, "is not a type of pandas"),
        ({"idd": "Int64"}, "the input has no column 'idd'. Near it: id"),
    ],
)
def test_a_type_that_a_column_cannot_have_is_refused(
    tmp_path: Path, kind: str, dtypes: dict[str, str], message: str
) -> None:
    """Before anything starts."""
    with pytest.raises(OptionError, match=message):
        open_source(_as_input(kind, tmp_path), ReadOptions(dtypes=dtypes))


UNFIT = {
    "delimiter": {"delimiter": ";"},
    "encoding": {"encoding": "latin-1"},
    "header": {"header": "no_header"},
}


@pytest.mark.parametrize("option", UNFIT)
def test_an_option_that_means_nothing_for_an_input_is_refused(tmp_path: Path, option: str) -> None:
    """Rather than ignored."""
    frame = pd.DataFrame({"a": [1]})
    frame.to_parquet(tmp_path / "a.parquet")
    for data in (frame, tmp_path / "a.parquet", dd.from_pandas(frame, npartitions=1)):
        with pytest.raises(OptionError, match=f"{option}=.*: not for"):
            open_source(data, ReadOptions(**UNFIT[option]))


def test_partitions_have_the_types_that_were_announced(tmp_path: Path) -> None:
    """A value that would change is an error with its partition and its column."""
    frames = [pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [1.5]})]
    parts = [delayed(frame) for frame in frames]
    wide = dd.from_delayed(parts, meta=frames[1], verify_meta=False)
    assert list(together(open_source(wide, ReadOptions()), tmp_path)["a"]) == [1.0, 1.5]
    narrow = dd.from_delayed(parts, meta=frames[0], verify_meta=False)
    with pytest.raises(LoadError, match="partition 1: column 'a' is float64 where int64"):
        open_source(narrow, ReadOptions()).prepare(tmp_path)


def test_categories_that_only_partitions_know_are_values(tmp_path: Path) -> None:
    """Each partition has others."""
    frame = pd.DataFrame({"a": ["x", "x", "y", None]})
    collection = dd.from_pandas(frame, npartitions=2).astype({"a": "category"})
    got = together(open_source(collection, ReadOptions()), tmp_path)
    assert list(got["a"].fillna("")) == ["x", "x", "y", ""]
