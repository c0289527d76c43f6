"""What `run` gets in each batch format, of whatever holds a table, and what is refused."""

from __future__ import annotations

import datetime as dt
import pickle
import tempfile
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import tests.support.polars_threads  # noqa: F401
from daskprs._inputs.open_source import open_source
from daskprs._inputs.source.batch_format import batch_form, rows_in
from daskprs._inputs.source.read_options import BatchFormat, ReadOptions
from daskprs.errors import InputError, LoadError, OptionError
from tests.support import types_tables
from tests.support.cases import few_examples
from tests.support.versions import ARROW, IS_PANDAS_2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from daskprs._inputs.source.source import Source

SOME = 40
"""Bytes of a mini-batch, so that even small tables have several."""
FORMATS: tuple[BatchFormat, ...] = get_args(BatchFormat)
DAYS = st.dates(dt.date(1970, 1, 2), dt.date(2200, 1, 1))
MOMENTS = st.datetimes(dt.datetime(1970, 1, 2), dt.datetime(2200, 1, 1))  # noqa: DTZ001
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
CENTS = st.decimals(-(10**6), 10**6, places=2, allow_nan=False, allow_infinity=False)
TYPES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int8(): st.integers(-128, 127),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.bool_(): st.booleans(),
    pa.string(): TEXT,
    pa.large_string(): TEXT,
    pa.binary(): st.binary(max_size=5),
    pa.decimal128(20, 2): CENTS,
    pa.date32(): DAYS,
    pa.time64("us"): st.times(),
    pa.timestamp("us"): MOMENTS,
    pa.timestamp("ms", "America/New_York"): MOMENTS.map(lambda at: at.replace(microsecond=0)),
    pa.duration("us"): st.timedeltas(dt.timedelta(0), dt.timedelta(9999)),
    pa.list_(pa.int32()): st.lists(st.none() | st.integers(-9, 9), max_size=3),
    pa.struct([("a", pa.int64()), ("b", pa.string())]): st.fixed_dictionaries(
        {"a": st.none() | st.integers(-9, 9), "b": st.none() | TEXT}
    ),
    pa.dictionary(pa.int32(), pa.string()): st.sampled_from(["red", "green"]),
    pa.null(): st.none(),
}
if hasattr(pa, "uuid"):
    TYPES[pa.uuid()] = st.uuids().map(lambda one: one.bytes)


FEWER = few_examples(2)  # each reads many files


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Draw a table of all kinds of columns, with nulls, in chunks."""
    types = draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=4))
    count = draw(st.integers(1, 12))
    columns = []
    for type_ in types:
        cells = st.lists(st.none() | TYPES[type_], min_size=count, max_size=count)
        columns.append(_array(draw(cells), type_))
    table = pa.table(columns, names=[f"c{place}" for place in range(len(types))])
    at = draw(st.integers(0, count))
    return pa.concat_tables([table.slice(0, at), table.slice(at)])


def _array(cells: list[Any], type_: pa.DataType) -> pa.Array:
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, pa.array(cells, type_.storage_type))
    if pa.types.is_dictionary(type_):
        return pa.array(cells, type_.value_type).dictionary_encode()
    return pa.array(cells, type_)


@pytest.fixture(autouse=True)
def _files_go_with_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def _in_file(table: pa.Table) -> str:
    path = Path(tempfile.mkdtemp()) / "table.parquet"
    pq.write_table(table, path, row_group_size=5)
    return str(path)


def _stream(table: pa.Table) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches())


HOLDERS: dict[str, Callable[[pa.Table], Any]] = {
    "a table": lambda table: table,
    "a stream": _stream,
    "a Parquet file": _in_file,
}


def batches(
    data: Any, batch_format: BatchFormat, size: int | None = SOME, **options: Any
) -> list[Any]:
    """Return what `run` would get, one mini-batch after the other."""
    reading = ReadOptions(mini_batch_size=size, batch_format=batch_format, **options)
    return given_to_run(open_source(data, reading), batch_format)


def given_to_run(source: Source, batch_format: BatchFormat) -> list[Any]:
    """Return the mini-batches of a source, loaded as in an agent."""
    with tempfile.TemporaryDirectory() as folder:
        source.prepare(Path(folder))
        form = batch_form(source, batch_format)
        reader = pickle.loads(pickle.dumps(source.reader()))
        with closing(reader):
            loaded = [reader.load(one) for one in source.mini_batches()]
            made = [rows if form is None else form.of(rows) for rows in loaded]
    counts = [one.items for one in source.mini_batches()]
    assert counts in ([rows_in(one) for one in made], [None] * len(made))
    return made


def _values(table: pa.Table) -> pa.Table:
    """Return a table with values in place of dictionaries, one chunk a column."""
    columns = [
        column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        for column in table.columns
    ]
    return pa.table(columns, names=table.column_names).combine_chunks()


def _cells(table: pa.Table) -> list[list[str]]:
    """Return cells as text, in which one NaN is as another and -0.0 is not 0.0."""
    return [list(map(repr, column.to_pylist())) for column in table.columns]


@pytest.mark.parametrize("holder", HOLDERS)
@FEWER
@given(table=tables())
def test_run_sees_in_arrow_what_the_input_holds(holder: str, table: pa.Table) -> None:
    """Types, nulls and NaN; in files and streams a dictionary is its values."""
    wanted = _values(table)
    made = batches(HOLDERS[holder](table), "pyarrow")
    got = _values(pa.concat_tables(made))
    assert [one.schema.types for one in made] == [made[0].schema.types] * len(made)
    if holder == "a table":
        assert made[0].schema.types == table.schema.types
    if holder != "a Parquet file":  # which has no type of its own for some
        assert got.schema.types == wanted.schema.types
    assert _cells(got) == _cells(wanted)


@pytest.mark.parametrize("holder", [*HOLDERS, "a polars frame", "a lazy frame"])
@FEWER
@given(table=tables())
def test_run_sees_in_polars_what_the_input_holds(holder: str, table: pa.Table) -> None:
    """As polars itself makes it of an Arrow table."""
    table = table.drop_columns(
        [f.name for f in table.schema if isinstance(f.type, pa.BaseExtensionType)]
    )
    if not table.num_columns:
        return
    wanted = pl.from_arrow(table)
    assert isinstance(wanted, pl.DataFrame)
    match holder:
        case "a polars frame":
            data: Any = wanted
        case "a lazy frame":
            data = wanted.lazy()
        case _:
            data = HOLDERS[holder](table)
    got = pl.concat(batches(data, "polars"))
    if holder not in {"a table", "a polars frame"}:
        wanted = wanted.with_columns(pl.col(pl.Categorical).cast(pl.String))
    assert_frame_equal(got, wanted, check_exact=True, categorical_as_str=True)


@pytest.mark.parametrize("holder", HOLDERS)
@FEWER
@given(table=tables())
def test_arrays_hold_what_frames_of_pandas_hold(holder: str, table: pa.Table) -> None:
    """An array for each column, of one type in all mini-batches."""
    try:
        frames = batches(HOLDERS[holder](table), "pandas")
    except InputError:  # an integer that no float holds, beside a null
        return
    except LoadError:
        return
    for arrays, frame in zip(batches(HOLDERS[holder](table), "numpy"), frames, strict=True):
        assert list(arrays) == list(frame.columns)
        for name, array in arrays.items():
            is_plain = isinstance(frame[name].dtype, np.dtype)
            wanted = frame[name].to_numpy(None if is_plain else object)
            assert array.dtype == wanted.dtype
            assert list(map(repr, array)) == list(map(repr, wanted))


def test_a_frame_of_pandas_keeps_nan_beside_null() -> None:
    """NaN of NumPy is no null; null of a nullable type is."""
    frame = pd.DataFrame(
        {"plain": [1.0, np.nan], "nullable": pd.array([1, None], "Int64"), "text": ["x", None]}
    )
    (table,) = batches(frame, "pyarrow", 1000)
    assert table.schema.field("nullable").type == pa.int64()
    assert repr(table.to_pydict()) == repr(
        {"plain": [1.0, np.nan], "nullable": [1, None], "text": ["x", None]}
    )


def test_nullable_integers_stay_what_they_are_in_arrays() -> None:
    """Objects in each mini-batch, with or without a null: no float holds this number."""
    frame = pd.DataFrame({"id": pd.array([2**60 + 1, None, 3], "Int64")})
    (whole,) = batches(frame, "numpy", 1000)
    assert whole["id"].tolist() == [2**60 + 1, pd.NA, 3]
    assert {one["id"].dtype for one in batches(frame, "numpy", 1)} == {np.dtype(object)}


def test_categories_that_are_integers_stay_integers_in_arrays() -> None:
    """Beside a null, too: no float holds this number."""
    frame = pd.DataFrame({"id": pd.Categorical([2**60 + 1, None])})
    (whole,) = batches(frame, "numpy", 1000)
    assert whole["id"][0] == 2**60 + 1
    assert np.isnan(whole["id"][1])


def test_a_dictionary_of_decimals_is_held() -> None:
    """Arrow cannot make one of Python's values, even of none."""
    cents = pa.array([Decimal("1.50"), None], pa.decimal128(5, 2))
    table = pa.table(
        {"a": pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), cents)}
    )
    (got,) = batches(table, "pyarrow", 1000)
    assert got.to_pydict() == table.to_pydict()
    assert batches(table, "polars", 1000)[0]["a"].to_list() == table["a"].to_pylist()


def test_labels_of_columns_become_text_in_arrow() -> None:
    """Numbers, say; arrays keep them."""
    frame = pd.DataFrame([[1, "x"]], columns=[0, 1])
    assert batches(frame, "pyarrow")[0].column_names == ["0", "1"]
    assert list(batches(frame, "numpy")[0]) == [0, 1]


CSV = "n,flag,big,text\n1,True,100000000000000000000,x\n,,,\n3,False,2,NA\n"


@pytest.mark.parametrize("batch_format", ["pyarrow", "polars"])
def test_each_piece_of_text_has_the_types_of_all(tmp_path: Path, batch_format: BatchFormat) -> None:
    """Also the piece in which a column is null: an empty cell is a null, never a NaN."""
    Path(tmp_path, "x.csv").write_text(CSV)
    made = batches(str(tmp_path / "x.csv"), batch_format, 30)
    assert len(made) > 1
    assert len({str(one.schema) for one in made}) == 1
    whole = pa.concat_tables([one if batch_format == "pyarrow" else one.to_arrow() for one in made])
    # In pandas 2, large integers beside nulls are text.
    big = [str(10**20), None, "2"] if IS_PANDAS_2 else [Decimal(10**20), None, Decimal(2)]
    assert whole.to_pydict() == {
        "n": [1.0, None, 3.0],
        "flag": [True, None, False],
        "big": big,
        "text": ["x", None, None],
    }


def test_integers_of_a_file_stay_integers_beside_nulls(tmp_path: Path) -> None:
    """Those that no float holds, too, which pandas refuses."""
    path = str(tmp_path / "x.parquet")
    pq.write_table(pa.table({"id": [2**60 + 1, None]}), path)
    (table,) = batches(path, "pyarrow", 1000)
    assert table.to_pydict() == {"id": [2**60 + 1, None]}
    with pytest.raises(LoadError, match="Int64"):
        batches(path, "pandas", 1000)


@pytest.mark.parametrize("batch_format", FORMATS)
def test_rows_of_a_key_come_together(batch_format: BatchFormat) -> None:
    """Null is a key of its own, and integers are integers beside it."""
    table = pa.table({"k": [7, None, 7, 2**53 + 1, None], "x": [[1], None, [2], [3], [4]]})
    if batch_format in {"pandas", "numpy"}:
        table = table.set_column(0, "k", pa.array([7.0, None, 7.0, 5.0, None]))
    reading = ReadOptions(partition_keys=("k",), batch_format=batch_format)
    source = open_source(table, reading)
    made = given_to_run(source, batch_format)
    cells = [list(map(_list, one["x"])) for one in made]
    assert cells == [[[1], [2]], [None, [4]], [[3]]]
    if batch_format in {"pyarrow", "polars"}:
        assert type(made[0]) is (pa.Table if batch_format == "pyarrow" else pl.DataFrame)


def test_keys_bring_rows_of_any_type_together() -> None:
    """Those, too, that Arrow itself cannot put into another order."""
    table = pa.table(
        {
            "k": pa.array(["a", None, "a"]).dictionary_encode(),
            "view": pa.array(["x", None, "y"], pa.string_view()),
            "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        }
    )
    made = batches(table, "pyarrow", None, partition_keys=("k",))
    assert [one.schema for one in made] == [table.schema] * 2
    assert [one.to_pylist() for one in made] == [table.to_pylist()[::2], table.to_pylist()[1:2]]


def _list(cell: Any) -> Any:
    cell = cell.as_py() if isinstance(cell, pa.Scalar) else cell
    return None if cell is None else list(cell)


@pytest.mark.parametrize("batch_format", ["pyarrow", "polars"])
def test_partitions_of_dask_have_one_type(batch_format: BatchFormat) -> None:
    """With NaN as a value, null in a nullable type, and all categories."""
    frame = pd.DataFrame(
        {
            "plain": [1.0, np.nan, 2.0, 3.0],
            "nullable": pd.array([2**60 + 1, 1, None, None], "Int64"),
            "text": [None, None, "x", "y"],
            "kind": pd.Categorical(["x", "x", "y", None]),
        }
    )
    made = batches(dd.from_pandas(frame, npartitions=2), batch_format, None)
    tables = [one if batch_format == "pyarrow" else one.to_arrow() for one in made]
    assert len(tables) == 2
    assert len({str(one.schema) for one in made}) == 1
    assert repr(_values(pa.concat_tables(tables)).to_pydict()) == repr(
        {
            "plain": [1.0, np.nan, 2.0, 3.0],
            "nullable": [2**60 + 1, 1, None, None],
            "text": [None, None, "x", "y"],
            "kind": ["x", "x", "y", None],
        }
    )


def test_folders_of_keys_are_joined_as_tables(tmp_path: Path) -> None:
    """Their values are columns."""
    for key, file in (("a", 1), ("b", 2), ("a", 3)):
        folder = tmp_path / f"key={key}"
        folder.mkdir(exist_ok=True)
        pq.write_table(pa.table({"x": [file, None]}), folder / f"{file}.parquet")
    made = batches(str(tmp_path), "pyarrow", partition_keys=("key",), size=None)
    assert [one.to_pydict() for one in made] == [
        {"x": [1, None, 3, None], "key": ["a"] * 4},
        {"x": [2, None], "key": ["b"] * 2},
    ]


def test_a_series_is_a_table_of_one_column() -> None:
    """Of pandas and of polars."""
    assert batches(pd.Series([1, 2], name="n"), "pyarrow")[0].to_pydict() == {"n": [1, 2]}
    assert batches(pl.Series("n", [1, None]), "polars")[0]["n"].to_list() == [1, None]


def test_the_same_rows_of_a_stream_are_the_same_input() -> None:
    """However they are cut into batches: a resume compares the content."""
    table = pa.table({"n": list(range(20_000)), "text": ["x", None] * 10_000})
    prints = set()
    for size in (1000, 7777, 20_000):
        stream = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(size))
        source = open_source(stream, ReadOptions(batch_format="pyarrow"))
        with tempfile.TemporaryDirectory() as folder:
            source.prepare(Path(folder))
        prints.add(str(source.fingerprint()))
    assert len(prints) == 1


def test_a_stream_that_breaks_says_how_far_it_came(tmp_path: Path) -> None:
    """The error is that of the stream."""

    def broken() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": list(range(10_000))})
        msg = "the cable was cut"
        raise OSError(msg)

    stream = pa.RecordBatchReader.from_batches(pa.schema([("n", pa.int64())]), broken())
    source = open_source(stream, ReadOptions())
    with pytest.raises(LoadError, match=r"error after 8,192 rows: OSError.*cable was cut"):
        source.prepare(tmp_path)


def test_a_lazy_frame_of_columns_that_do_not_exist_is_refused() -> None:
    """Before anything is computed."""
    lazy = pl.LazyFrame({"a": [1]}).select("b")
    with pytest.raises(InputError, match="lazy frame cannot be computed: ColumnNotFound"):
        open_source(lazy, ReadOptions())


def test_a_size_of_files_is_refused_before_a_stream_is_read() -> None:
    """It can be read only once."""
    stream = _stream(pa.table({"n": [1, 2]}))
    with pytest.raises(OptionError, match="for a table it is a number of bytes"):
        open_source(stream, ReadOptions(mini_batch_size="20 files"))
    assert len(stream.read_all()) == 2


REFUSED: dict[str, tuple[Any, BatchFormat, type[Exception], str]] = {
    "lists of no values in polars": (
        pa.table({"a": pa.array([[], []], pa.list_(pa.int8(), 0))}),
        "polars",
        InputError,
        r"column 'a' is fixed_size_list.*, which polars cannot hold.*batch_format='pyarrow'",
    ),
    "objects in polars": (
        pl.DataFrame({"a": pl.Series([object()], dtype=pl.Object)}),
        "polars",
        InputError,
        r"column 'a' is Object, which Arrow cannot hold.*Cast it",
    ),
    "objects in a lazy frame": (
        pl.LazyFrame({"a": pl.Series([object()], dtype=pl.Object)}),
        "pandas",
        InputError,
        r"column 'a' is Object, which Arrow cannot hold.*Cast it",
    ),
    "a type that Arrow lacks": (
        pl.DataFrame({"a": [1], "b": pl.Series([1], dtype=pl.Int128)}),
        "pandas",
        InputError,
        r"column 'b' is Int128, which Arrow cannot hold.*Cast it",
    ),
    "mixed objects": (
        pd.DataFrame({"a": [1, "x"]}),
        "polars",
        InputError,
        r"column 'a' holds values that no type of Arrow holds.*batch_format='pandas'",
    ),
    "a type that polars lacks": (
        pa.table({"a": pa.array([Decimal(1)], pa.decimal256(60, 0))}),
        "polars",
        InputError,
        r"column 'a' is decimal256\(60, 0\), which polars cannot hold.*batch_format='pyarrow'",
    ),
    "no columns": (
        pd.DataFrame(index=range(3)),
        "numpy",
        OptionError,
        "batch_format='numpy': the input has no columns, and its rows would be lost",
    ),
    "columns of one name": (
        pd.DataFrame([[1, 2]], columns=["a", "a"]),
        "polars",
        OptionError,
        "batch_format: the input has more than one column 'a'",
    ),
    "a stream without columns": (
        pa.RecordBatchReader.from_batches(pa.schema([]), []),
        "pandas",
        InputError,
        "the stream has no columns, so that its rows would be lost",
    ),
    "an array without columns": (
        pa.chunked_array([[1, 2]]),
        "pyarrow",
        InputError,
        r"stream of this pyarrow\S*ChunkedArray cannot be opened as rows with columns",
    ),
    "files": (
        __file__,
        "pyarrow",
        OptionError,
        "batch_format='pyarrow': not for lists of files",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_a_format_cannot_hold_is_refused(kind: str) -> None:
    """Before anything starts."""
    data, batch_format, error, message = REFUSED[kind]
    with pytest.raises(error, match=message):
        open_source(data, ReadOptions(batch_format=batch_format))


def test_polars_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that installs it."""
    monkeypatch.setattr("daskprs._inputs.source.batch_format.find_spec", lambda _: None)
    with pytest.raises(OptionError, match=r'not installed.*pip install "daskprs\[polars\]"'):
        open_source(pd.DataFrame({"a": [1]}), ReadOptions(batch_format="polars"))


@pytest.mark.skipif(IS_PANDAS_2, reason="the page has the types of pandas 3")
def test_the_tables_of_types_are_made_from_what_run_gets() -> None:
    """``python -m tests.support.types_tables`` writes them anew."""
    page = types_tables.PAGE.read_text()
    assert page == types_tables.written(page), "run python -m tests.support.types_tables"


@pytest.mark.parametrize("batch_format", FORMATS)
@pytest.mark.parametrize("holder", HOLDERS)
def test_a_column_reaches_run_though_notes_call_it_an_index(
    holder: str, batch_format: BatchFormat
) -> None:
    """In every batch format."""
    noted = pa.Table.from_pandas(pd.DataFrame({"id": ["a", "b"], "n": [1, 2]}).set_index("id"))
    (made,) = batches(HOLDERS[holder](noted), batch_format, size=1 << 20)
    names = made.column_names if isinstance(made, pa.Table) else list(made)
    if isinstance(made, pl.DataFrame):
        names = made.columns
    assert sorted(names) == ["id", "n"]
    assert list(map(str, made["id"])) == ["a", "b"]


PAIR = pa.list_(pa.float32(), 2)
PAIRS = [None if row % 3 == 1 else [float(row), None] for row in range(12)]
NESTED = [None if row % 4 == 1 else [pair, pair] for row, pair in enumerate(PAIRS)]


@pytest.mark.parametrize("holder", HOLDERS)
def test_polars_gets_null_lists_of_fixed_size(holder: str) -> None:
    """Which it cannot take in a slice; lists in such lists, too."""
    if holder == "a Parquet file" and ARROW < 26:
        pytest.skip("Arrow before 26 reads no such lists from Parquet, and writes few")
    table = pa.table({"x": pa.array(PAIRS, PAIR), "y": pa.array(NESTED, pa.list_(PAIR, 2))})
    made = batches(HOLDERS[holder](table), "polars", 3 * table.nbytes // len(table))
    assert len(made) > 2
    assert [row for one in made for row in one["x"].to_list()] == PAIRS
    assert [row for one in made for row in one["y"].to_list()] == NESTED
