"""Types that are given, announced or named by a schema change no value."""

from __future__ import annotations

import datetime as dt
import math
import re
from contextlib import closing
from decimal import Decimal
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import daskprs
from daskprs._arrow.exact_casts import MISFITS, Asked, checked_cast
from daskprs._inputs.collections.staging import staged
from daskprs._inputs.collections.staging_form import form_of_frames
from daskprs._inputs.open_source import open_source
from daskprs._inputs.source.given_types import converted
from daskprs._inputs.source.read_options import ReadOptions
from daskprs._output.rows.given_schema import GivenSchema, schema_text
from daskprs.errors import InputError, LoadError, OptionError, ReturnTypeError
from tests.support.arrow_of_all_kinds import FLAT
from tests.support.cases import few_examples
from tests.support.put_together import together
from tests.support.versions import dtype_of

if TYPE_CHECKING:
    from pathlib import Path

NUMBERS = st.sampled_from(
    [
        *[2**bits + more for bits in (7, 8, 31, 53, 63, 64) for more in (-1, 0, 1)],
        0,
        1,
        -1,
        20200101,
    ]
)
"""The bounds of all types of numbers, and a date that is written as one."""
ODD_TEXT = ["007", "1.50", "0x10", "1e400", "true", "2020-01-01", "2020-01-01 00:00:00"]
KINDS = [
    *FLAT,
    (pa.int64(), NUMBERS.filter(lambda value: value < 2**63)),
    (pa.uint64(), NUMBERS.filter(lambda value: 0 <= value < 2**64)),
    (pa.float64(), NUMBERS.map(float) | st.sampled_from([0.1, -0.0, 1e300, math.inf])),
    (pa.decimal128(38, 3), NUMBERS.map(Decimal)),
    (pa.string(), NUMBERS.map(str) | st.sampled_from(ODD_TEXT)),
    (pa.timestamp("ns"), st.integers(-(2**40), 2**40)),
    (pa.timestamp("us", "UTC"), st.integers(-(2**40), 2**40)),
    (pa.date64(), st.integers(-30_000, 40_000).map(lambda day: day * 86_400_000)),
    (pa.time32("s"), st.integers(0, 86_399)),
    (pa.duration("s"), st.integers(-9, 9)),
    (pa.large_binary(), st.binary(max_size=4)),
]


def equal(value: Any, made: Any, to: pa.DataType, asked: Asked) -> bool:
    """Say whether a value is the same by its meaning, in other words than the code under test."""
    if value is None or made is None:
        return value is made
    if kind_of(value) != kind_of(made):
        return asked is Asked.DTYPES and converts(value, made, to)
    if isinstance(value, float) and math.isnan(value):
        return isinstance(made, float) and math.isnan(made)
    if isinstance(value, float) and asked >= Asked.SCHEMA and not isinstance(made, int):
        return value == made or is_rounded(value, made, to)
    if {float, Decimal} == {type(value), type(made)}:
        return float(value) == float(made)
    return bool(value == made)


def kind_of(value: Any) -> type:
    """Return what a value is; numbers of any class are one kind."""
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return float
    kinds = (bool, str, bytes, dt.datetime, dt.date, dt.time, dt.timedelta)
    return next(kind for kind in kinds if isinstance(value, kind))


def converts(value: Any, made: Any, to: pa.DataType) -> bool:
    """Say whether the option `dtypes` makes one kind of a value of another one."""
    if isinstance(value, str):
        return written(value, made, to)
    match kind_of(value).__name__, kind_of(made).__name__:
        case ("bytes", "str"):
            return bool(value.decode() == made)
        case ("float", "bool") | ("bool", "float"):
            return bool(value == made)
        case ("date", "datetime") | ("datetime", "date"):
            return bool(pd.Timestamp(value) == pd.Timestamp(made))
        case (_, "str"):
            return not isinstance(value, dt.timedelta)
    return False


def is_rounded(value: float, made: Any, to: pa.DataType) -> bool:
    """Say whether a shorter float or a decimal is the nearest one, with an infinity for none."""
    if isinstance(made, Decimal):
        return abs(Decimal(value) - made) <= Decimal(10) ** -to.scale
    digits = {16: 1e-3, 32: 1e-7}.get(to.bit_width, 1e-15)
    is_near = math.isclose(value, made, rel_tol=digits, abs_tol=1e-7)
    return math.isinf(value) == math.isinf(made) and is_near


def written(text: str, made: Any, to: pa.DataType) -> bool:
    """Say whether a value is the one that a text writes."""
    if isinstance(made, bytes):
        return text.encode() == made
    if isinstance(made, bool):
        return text.lower() == str(made).lower()
    if isinstance(made, float):
        return math.isnan(made) or is_rounded(float(text), made, to)
    if isinstance(made, (int, Decimal)):
        return text == str(made)
    return pd.Timestamp(text) == pd.Timestamp(made)


@pytest.mark.timeout(900)  # the long form has 200,000 casts
@pytest.mark.parametrize("one", KINDS, ids=lambda kind: str(kind[0]))
@few_examples(2)
@given(drawn=st.data())
def test_values_of_any_type_are_refused_as_another_or_are_equal(
    one: Any, drawn: st.DataObject
) -> None:
    """Floats are rounded to shorter floats and to decimals, where a caller names the type."""
    cells = drawn.draw(st.lists(one[1] | st.none(), min_size=1, max_size=2))
    values = pa.chunked_array([pa.array(cells, one[0])])
    for (other, _), asked in product(KINDS, Asked):
        try:
            made = checked_cast(values, other, asked)
        except pa.ArrowInvalid:
            continue
        assert made.type == other
        for value, now in zip(values.to_pylist(), made.to_pylist(), strict=True):
            assert equal(value, now, other, asked), (value, now, other, asked)


DTYPES = [
    *("int8", "uint8", "int64", "uint64", "Int64", "UInt8", "float32", "float64", "Float64"),
    *("bool", "boolean", "str", "datetime64[ns]", "datetime64[s]", "datetime64[us, UTC]"),
    *("timedelta64[ns]", "int64[pyarrow]", "timestamp[ns][pyarrow]", "date32[pyarrow]", "object"),
    pd.CategoricalDtype([1, 2, 20200101]),
    pd.CategoricalDtype(["1", "a"]),
    "period[D]",
]
CELLS = {
    "integers": NUMBERS.filter(lambda value: value < 2**63),
    "uint64": NUMBERS.filter(lambda value: 0 <= value < 2**64),
    "floats": NUMBERS.map(float) | st.floats(),
    "booleans": st.booleans(),
    "text": NUMBERS.map(str) | st.sampled_from(["a", "007", "True"]),
    "moments": st.integers(-(2**40), 2**40).map(pd.Timestamp),
    "spans": st.integers(-(2**40), 2**40).map(pd.Timedelta),
    "days": st.dates(dt.date(1900, 1, 1), dt.date(2100, 1, 1)),
}


@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore:Passing integer data to Period")
@pytest.mark.parametrize("kind", CELLS)
@few_examples(2)
@given(drawn=st.data())
def test_cells_of_a_frame_are_refused_as_another_type_or_are_equal(
    kind: str, drawn: st.DataObject
) -> None:
    """Types of pandas, of which Arrow has some."""
    cells = drawn.draw(st.lists(CELLS[kind], min_size=1, max_size=2))
    dtype = {"integers": "int64", "uint64": "uint64"}.get(kind)
    column = pd.Series(cells, range(3, 3 + len(cells)), dtype, name="a")
    for to, asked in product(map(pd.api.types.pandas_dtype, DTYPES), [Asked.NOT, Asked.DTYPES]):
        try:
            made = converted(column, to, asked)
        except MISFITS:
            continue
        assert made.dtype == dtype_of(to)
        assert made.index.equals(column.index)
        assert made.name == "a"
        size = pa.float32() if str(to) == "float32" else pa.float64()
        for value, now in zip(column.astype(object), made.astype(object), strict=True):
            one, other = (None if pd.isna(cell) else cell for cell in (value, now))
            assert equal(one, other, size, asked), (value, now, to, asked)


CHANGING: dict[str, tuple[Any, Any]] = {
    "a negative number as an unsigned one": (pd.Series([-1]), "uint64"),
    "a large number as a signed one": (pd.Series([2**63], dtype="uint64"), "int64"),
    "a number as a moment": (pd.Series([20200101]), "timestamp[ns][pyarrow]"),
    "a moment as a number": (pd.Series([pd.Timestamp("2020")]), "int64"),
    "a span as a number": (pd.Series([pd.Timedelta("1h")]), "int64"),
}
KINDS_OF_INPUT = ["pandas", "Arrow", "Parquet", "a stream", "dask"]


def as_input(kind: str, column: pd.Series, folder: Path) -> Any:
    """Return a column as an input."""
    import dask.dataframe as dd

    frame = column.to_frame("a")
    table = pa.Table.from_pandas(frame, preserve_index=False)
    if kind == "Parquet":
        pq.write_table(table, folder / "a.parquet")
    return {
        "pandas": lambda: frame,
        "Arrow": lambda: table,
        "Parquet": lambda: folder / "a.parquet",
        "a stream": table.to_reader,
        "dask": lambda: dd.from_pandas(frame, npartitions=1),
    }[kind]()


@pytest.mark.parametrize("kind", KINDS_OF_INPUT)
@pytest.mark.parametrize("change", CHANGING)
def test_a_type_in_dtypes_that_changes_a_value_is_refused(
    tmp_path: Path, kind: str, change: str
) -> None:
    """Whatever holds the rows; the message names the column, and what to do."""
    column, dtype = CHANGING[change]
    reading = ReadOptions(dtypes={"a": dtype})
    with pytest.raises((InputError, LoadError, OptionError), match=r"column 'a'.*") as raised:
        together(open_source(as_input(kind, column, tmp_path), reading), tmp_path)
    assert "convert the column in run()" in str(raised.value) or "astype" in str(raised.value)


@pytest.mark.parametrize("change", CHANGING)
def test_a_partition_whose_announced_type_changes_a_value_is_refused(
    tmp_path: Path, change: str
) -> None:
    """Dask itself would hand on what the partition has."""
    column, dtype = CHANGING[change]
    meta = pd.DataFrame({"a": pd.Series(dtype=dtype)})
    with pytest.raises(LoadError, match=r"partition 0: column 'a' is .* was announced"):
        staged(column.to_frame("a"), 0, form_of_frames(meta, ReadOptions()), tmp_path)


@pytest.mark.parametrize("change", CHANGING)
def test_a_schema_that_changes_a_value_is_refused(change: str) -> None:
    """In the mini-batch that returned it."""
    column, dtype = CHANGING[change]
    named = pd.api.types.pandas_dtype(dtype)
    wanted = named.pyarrow_dtype if isinstance(named, pd.ArrowDtype) else dtype
    with pytest.raises(ReturnTypeError, match=r"column 'a' is .* in mini-batch 3"):
        GivenSchema(schema_text({"a": wanted}), 3).table(column.to_frame("a"))


def test_floats_are_rounded_where_the_caller_names_a_shorter_type(tmp_path: Path) -> None:
    """By `dtypes` and by `schema`; an announced type or that of other rows rounds nothing."""
    floats = pd.DataFrame({"a": [0.1, 1.25]})
    for kind in KINDS_OF_INPUT:
        reading = ReadOptions(dtypes={"a": "float32"})
        seen = together(open_source(as_input(kind, floats["a"], tmp_path), reading), tmp_path)
        pd.testing.assert_series_equal(seen["a"], floats["a"].astype("float32"), check_index=False)
    brought = GivenSchema(schema_text({"a": pa.decimal128(4, 1)}), 0).table(floats)
    assert brought["a"].to_pylist() == [Decimal("0.1"), Decimal("1.2")]
    meta = floats.iloc[:0].astype("float32")
    with pytest.raises(LoadError, match=r"a value would change, got 0.1"):
        staged(floats, 0, form_of_frames(meta, ReadOptions()), tmp_path)


MAP = pa.map_(pa.string(), pa.int64())
TEXT_THAT_DOES_NOT_FIT = {
    "a moment": ({"a": "datetime64[ns]"}, "20200101"),
    "a moment of Arrow": ({"a": "timestamp[ns][pyarrow]"}, "20200101"),
    "a span": ({"a": "timedelta64[ns]"}, "5"),
    "part of a second": ({"a": "datetime64[s]"}, '"2020-01-01 00:00:00.5"'),
    "a boolean": ({"a": bool}, "2"),
    "a boolean of text": ({"a": bool}, '"no"'),
    "a null": ({"a": bool}, "null"),
    "a short float": ({"a": "float32"}, "1e300"),
    "a short integer": ({"a": "int8[pyarrow]"}, "2.5"),
    "a category": ({"a": pd.CategoricalDtype(["b"])}, '"a"'),
    "a number as a time": ({"a": "time64[us][pyarrow]"}, "5"),
    "odd text as a time": ({"a": "time64[us][pyarrow]"}, '"5"'),
    "a number as a period": ({"a": "period[M]"}, "202001"),
    "odd text as a period": ({"a": "period[M]"}, '"x"'),
    "a day as a month": ({"a": "period[M]"}, '"2020-01-15"'),
    "a day of which the month is guessed": ({"a": "period[D]"}, '"03/02/2020"'),
    "a day of which the month is clear": ({"a": "period[D]"}, '"13/02/2020"'),
    "a week of other days": ({"a": "period[W]"}, '"2020-01-01/2020-01-07"'),
    "parts of a second as a time": ({"a": "time32[s][pyarrow]"}, '"10:20:30.9"'),
    "a time with a zone": ({"a": "time32[s][pyarrow]"}, '"23:59:59+02:00"'),
    "an hour beyond the day": ({"a": "time32[s][pyarrow]"}, '"25:00:00"'),
    "a large sparse float": ({"a": "Sparse[float32]"}, "1e300"),
    "a large sparse integer": ({"a": "Sparse[float32]"}, "16777217"),
    "a larger sparse integer": ({"a": "Sparse[float64]"}, "9007199254740993"),
    "a sparse integer for half a float": ({"a": "Sparse[float16]"}, "70000"),
    "a large complex number": ({"a": "complex64"}, "1e300"),
    "a sparse integer": ({"a": "Sparse[int]"}, "1.5"),
    "a sparse null": ({"a": "Sparse[int]"}, "null"),
    "a complex boolean": ({"a": "complex128"}, "true"),
    "an object as text": ({"a": "string"}, '{"b": 1}'),
    "a nested moment": ({"a": pd.ArrowDtype(pa.list_(pa.timestamp("s")))}, "[20200101]"),
    "a nested integer": ({"a": pd.ArrowDtype(pa.list_(pa.int8()))}, "[2.5]"),
    "an integer that no float holds": ({"a": "float64"}, "9007199254740993"),
    "a list as a map": ({"a": pd.ArrowDtype(MAP)}, "[null]"),
    "a list as a map in a list": ({"a": pd.ArrowDtype(pa.list_(MAP))}, "[[null]]"),
    "a list as a map in a struct": ({"a": pd.ArrowDtype(pa.struct([("b", MAP)]))}, '{"b": [null]}'),
    "a list as a map in a map": ({"a": pd.ArrowDtype(pa.map_("string", MAP))}, '{"b": [null]}'),
}


@pytest.mark.parametrize("case", TEXT_THAT_DOES_NOT_FIT)
def test_a_value_of_json_that_a_type_in_dtypes_would_change_is_refused(
    tmp_path: Path, case: str
) -> None:
    """With file, line and value."""
    dtypes, value = TEXT_THAT_DOES_NOT_FIT[case]
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"a": {value}}}\n')
    with pytest.raises(
        LoadError, match=r"line 1: column 'a' holds .*, which does not fit"
    ) as raised:
        together(open_source(path, ReadOptions(dtypes=dtypes)), tmp_path)
    assert "Give it another type in dtypes" in str(raised.value)


FITTING_TEXT: list[tuple[Any, str, Any]] = [
    ("datetime64[s]", '"2020-01-01 00:00:05"', pd.Timestamp("2020-01-01 00:00:05")),
    ("date32[pyarrow]", '"2020-01-01"', dt.date(2020, 1, 1)),
    ("timedelta64[ns]", '"5s"', pd.Timedelta("5s")),
    ("string", "7", "7"),
    ("time64[us][pyarrow]", '"05:00:00"', dt.time(5)),
    ("period[M]", '"2020-01"', pd.Period("2020-01", "M")),
    ("period[M]", '"2020-01-01"', pd.Period("2020-01", "M")),
    ("period[Q-DEC]", '"2020-Q2"', pd.Period("2020Q2", "Q")),
    ("period[W-SUN]", '"2020-01-06/2020-01-12"', pd.Period("2020-01-06", "W-SUN")),
    ("period[h]", '"2020-01-15 10:00"', pd.Period("2020-01-15 10:00", "h")),
    ("time32[ms][pyarrow]", '"10:20:30.9"', dt.time(10, 20, 30, 900_000)),
    ("Sparse[int]", "0", 0),
    ("Sparse[bool]", "true", True),
    ("Sparse[float32]", "0.1", pytest.approx(0.1)),
    ("complex128", "1", 1),
    ("complex64", "0.1", pytest.approx(0.1)),
    (int, '"7"', 7),
    ("int64", '"7"', 7),
    ("float64", '"7"', 7.0),
    ("bool", "1", True),
    (pd.ArrowDtype(MAP), '{"b": 1}', [("b", 1)]),
    ("UInt64", "18446744073709551615", 2**64 - 1),
    ("float32", "0.5", 0.5),
    (pd.CategoricalDtype(["b"]), '"b"', "b"),
    (pd.ArrowDtype(pa.list_(pa.float32())), "[0.1, null]", [pytest.approx(0.1), None]),
]


@pytest.mark.parametrize(("dtype", "value", "expected"), FITTING_TEXT)
def test_a_value_of_json_has_the_type_in_dtypes(
    tmp_path: Path, dtype: Any, value: str, expected: Any
) -> None:
    """Where it says the same."""
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"a": {value}}}\n')
    seen = together(open_source(path, ReadOptions(dtypes={"a": dtype})), tmp_path)
    assert seen["a"].dtype == dtype
    assert seen["a"].tolist() == [expected] or list(seen["a"][0]) == expected


def test_text_in_dtypes_has_any_value_of_json(tmp_path: Path) -> None:
    """Whether the type or its name is given."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": "x"}\n{"a": 7}\n{"a": true}\n{"a": null}\n')
    for dtype in ("str", str, "string"):
        seen = together(open_source(path, ReadOptions(dtypes={"a": dtype})), tmp_path)
        assert seen["a"].isna().tolist() == [False, False, False, True]
        assert seen["a"].dropna().tolist() == ["x", "7", "True"]


@pytest.mark.parametrize("size", [1, 10**6])
@pytest.mark.parametrize("dtype", ["Int64", "float64", pd.CategoricalDtype([1, 7, 9])])
def test_values_of_json_of_several_kinds_fit_in_any_mini_batch(
    tmp_path: Path, dtype: Any, size: int
) -> None:
    """As each of them does alone."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": "7"}\n{"a": 9}\n{"a": true}\n{"a": null}\n{"a": 1.0}\n')
    reading = ReadOptions(dtypes={"a": dtype}, mini_batch_size=size)
    seen = together(open_source(path, reading), tmp_path)
    assert seen["a"].isna().tolist() == [False, False, False, True, False]
    assert seen["a"].dropna().tolist() == [7, 9, 1, 1]


def test_a_category_of_json_has_the_values_that_it_finds(tmp_path: Path) -> None:
    """Where `dtypes` lists none, also of several kinds."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": "x"}\n{"a": 7}\n{"a": null}\n')
    source = open_source(path, ReadOptions(dtypes={"a": "category"}))
    with closing(source.reader()) as reader:
        (seen,) = map(reader.load, source.mini_batches())
    assert seen["a"].dtype == "category"
    assert seen["a"].dropna().tolist() == ["x", 7]


def test_an_integer_of_json_beside_floats_is_not_rounded(tmp_path: Path) -> None:
    """Though the floats are."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 0.1}\n{"a": 16777217}\n')
    for dtype in ("float32", "Sparse[float32]", "complex64"):
        with pytest.raises(LoadError, match="line 2: column 'a' holds 16777217"):
            together(open_source(path, ReadOptions(dtypes={"a": dtype})), tmp_path)


@pytest.mark.parametrize(
    ("dtype", "cell"),
    [
        ("period[M]", "2020-01-15"),
        ("period[D]", "13/02/2020"),
        ("period[D]", "03/02/2020"),
        ("period[D]", "now"),
        ("time32[s][pyarrow]", "10:20:30.9"),
        ("time32[s][pyarrow]", "23:59:59+02:00"),
        ("Int64", "9007199254740993.0"),
        ("int64[pyarrow]", "9007199254740993.0"),
        ("Float32", "1e300"),
        ("float[pyarrow]", "1e300"),
        ("time64[us][pyarrow]", "5"),
    ],
)
def test_a_cell_of_text_that_a_type_in_dtypes_would_change_is_refused(
    tmp_path: Path, dtype: str, cell: str
) -> None:
    """Though pandas itself rounds it, or has infinity or null for it."""
    path = tmp_path / "a.csv"
    path.write_text(f"a,b\n{cell},1\n")
    with pytest.raises(LoadError, match=f"line 2: column 'a' holds '{re.escape(cell)}'"):
        together(open_source(path, ReadOptions(dtypes={"a": dtype})), tmp_path)


def test_cells_of_text_that_fit_have_the_type_in_dtypes(tmp_path: Path) -> None:
    """Large integers, short floats and times; a null stays one."""
    path = tmp_path / "a.csv"
    path.write_text("a,b,c,d\n9007199254740993,0.1,05:00:00,2020-01\n,,,\n")
    dtypes = {"a": "Int64", "b": "Float32", "c": "time64[us][pyarrow]", "d": "period[M]"}
    seen = together(open_source(path, ReadOptions(dtypes=dtypes)), tmp_path)
    assert seen["a"].tolist() == [2**53 + 1, pd.NA]
    assert seen["b"][0] == pytest.approx(0.1)
    assert seen["c"].tolist() == [dt.time(5), pd.NA]
    assert seen["d"].tolist() == [pd.Period("2020-01", "M"), pd.NaT]
    assert {name: str(dtype) for name, dtype in seen.dtypes.items()} == dtypes


def test_a_job_says_which_column_of_a_frame_does_not_fit() -> None:
    """Before anything starts."""
    with pytest.raises(InputError, match=r"column 'a' is int64 and cannot be read as uint64: a "):
        daskprs.parallel_run(pd.DataFrame({"a": [-1]}), lambda rows: rows, dtypes={"a": "uint64"})


NAIVE, ZONED = pd.Timestamp("2020-01-01"), pd.Timestamp("2020-01-01", tz="Europe/Berlin")
FINE = pd.Timestamp(1)
MOMENTS: dict[str, tuple[list[Any], str]] = {
    "a nanosecond in a type of microseconds": ([FINE], "datetime64[us]"),
    "a nanosecond of a span": ([pd.Timedelta(1)], "timedelta64[us]"),
    "a nanosecond and a far year": ([FINE, pd.Timestamp("3000-01-01")], "datetime64[us]"),
    "a zone where none is announced": ([NAIVE, ZONED], "datetime64[ns]"),
    "none where a zone is announced": ([NAIVE, ZONED], "datetime64[ns, UTC]"),
    "the other way round": ([ZONED, None, NAIVE], "datetime64[us, UTC]"),
    "a nanosecond beside NumPy": ([FINE, np.datetime64("2020-01-01", "us")], "datetime64[us]"),
    "a zone beside NumPy": ([NAIVE, ZONED, np.datetime64("2020-01-01", "us")], "datetime64[us]"),
    "a span beside a date": ([dt.date(2020, 1, 1), np.timedelta64(1, "ns")], "date32[pyarrow]"),
    "a picosecond of NumPy": ([NAIVE, np.datetime64(1, "ps")], "datetime64[ns]"),
}


@pytest.mark.parametrize("case", MOMENTS)
def test_moments_that_are_objects_keep_nanoseconds_and_zones(tmp_path: Path, case: str) -> None:
    """In partitions with an announced type, and in rows with a schema; else they are refused."""
    cells, dtype = MOMENTS[case]
    frame = pd.DataFrame({"a": pd.Series(cells, dtype=object)})
    meta = pd.DataFrame({"a": pd.Series(dtype=dtype)})
    with pytest.raises(LoadError, match=r"column 'a' is object where .* was announced"):
        staged(frame, 0, form_of_frames(meta, ReadOptions()), tmp_path)
    with pytest.raises(ReturnTypeError, match=r"column 'a' .* in mini-batch 3"):
        GivenSchema(schema_text(meta), 3).table(frame)


@pytest.mark.parametrize(
    ("cells", "dtype"),
    [
        ([FINE, None], "datetime64[ns]"),
        ([FINE.tz_localize("UTC")], "datetime64[ns, UTC]"),
        ([ZONED, ZONED.tz_convert("Asia/Tokyo")], "datetime64[ns, UTC]"),
        ([pd.Timedelta(1), pd.NaT], "timedelta64[ns]"),
        ([FINE, np.datetime64("2020-01-01", "us"), np.datetime64("NaT", "us")], "datetime64[ns]"),
        ([dt.timedelta(1), np.timedelta64(1, "ns")], "timedelta64[ns]"),
    ],
)
def test_moments_that_are_objects_become_the_same_moments(cells: list[Any], dtype: str) -> None:
    """To the nanosecond; two zones name the same moments."""
    column = pd.Series(cells, dtype=object)
    made = converted(column, pd.api.types.pandas_dtype(dtype))
    assert made.dtype == dtype
    assert made.dropna().tolist() == column.dropna().tolist()
    table = GivenSchema(schema_text({"a": dtype}), 0).table(column.to_frame("a"))
    assert table["a"].to_pandas().dropna().tolist() == column.dropna().tolist()


NULLS_ALONE = [
    *("str", "string", "boolean", "Int64", "datetime64[ns]", "date32[pyarrow]", "period[D]"),
    pd.CategoricalDtype(["b"]),
]


@pytest.mark.parametrize("dtype", NULLS_ALONE, ids=str)
@pytest.mark.parametrize("nulls", [[math.nan, math.nan], [None, None]], ids=["floats", "objects"])
def test_a_column_of_nulls_alone_has_any_announced_type(nulls: list[Any], dtype: Any) -> None:
    """As `pandas.read_csv` makes floats of an empty column."""
    made = converted(pd.Series(nulls, [3, 4], name="a"), pd.api.types.pandas_dtype(dtype))
    assert made.dtype == dtype_of(dtype)
    assert made.isna().tolist() == [True, True]
    assert made.index.tolist() == [3, 4]


@pytest.mark.parametrize("dtype", ["int64", "bool"])
def test_a_column_of_nulls_alone_is_refused_by_a_type_without_null(dtype: str) -> None:
    """It would be zeros."""
    with pytest.raises(MISFITS, match=f"2 of the values are null, which {dtype} does not hold"):
        converted(pd.Series([math.nan, math.nan]), pd.api.types.pandas_dtype(dtype))


def test_a_float_that_arrow_does_not_have_is_refused_for_a_frame() -> None:
    """As other types that are none of Arrow's."""
    with pytest.raises(OptionError, match="'longdouble', given for the column 'a', is none of"):
        open_source(pd.DataFrame({"a": [1.5]}), ReadOptions(dtypes={"a": "longdouble"}))
