"""The schema that the caller gives: as text, and for what `run` returned."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tests.support.polars_threads  # noqa: F401
from daskprs._output.rows.given_schema import GivenSchema, schema_of, schema_text
from daskprs.errors import ReturnTypeError
from tests.support.arrow_of_all_kinds import TYPES
from tests.support.versions import ARROW_TEXT

if TYPE_CHECKING:
    from collections.abc import Callable

MINI_BATCH = 7
WIDTHS = {8: "int8", 16: "int16", 32: "int32"}


def brought(schema: Any, *blocks: Any) -> pa.Table:
    """Return what a mini-batch returned in a schema."""
    rows = GivenSchema(schema_text(schema), MINI_BATCH)
    return pa.concat_tables([rows.table(block) for block in blocks])


@given(kinds=st.lists(st.sampled_from(TYPES), min_size=1, max_size=5), is_nullable=st.booleans())
def test_an_arrow_schema_comes_back_from_its_text(kinds: list[Any], *, is_nullable: bool) -> None:
    """Whatever the types are, also those that no name says."""
    fields = [
        pa.field(f"c{at}", kind, is_nullable or kind == pa.null())
        for at, (kind, _) in enumerate(kinds)
    ]
    text = schema_text(pa.schema(fields))
    assert schema_of(text).equals(pa.schema(fields))
    assert schema_text(text) == text


NAMED: list[tuple[Any, pa.DataType]] = [
    ("int64", pa.int64()),
    ("Int64", pa.int64()),
    ("float", pa.float64()),
    (float, pa.float64()),
    (int, pa.int64()),
    (str, pa.string()),
    (bytes, pa.binary()),
    ("string", pa.string()),
    ("boolean", pa.bool_()),
    ("date32", pa.date32()),
    ("timestamp[us]", pa.timestamp("us")),
    ("timestamp[us, tz=Europe/Rome]", pa.timestamp("us", "Europe/Rome")),
    ("datetime64[ns, UTC]", pa.timestamp("ns", "UTC")),
    (np.float32, pa.float32()),
    (np.dtype("int16"), pa.int16()),
    (pa.float32(), pa.float32()),
    (pd.UInt8Dtype(), pa.uint8()),
    (pd.CategoricalDtype(["a"]), pa.dictionary(pa.int32(), ARROW_TEXT)),
]


@pytest.mark.parametrize(("named", "type_"), NAMED, ids=repr)
def test_a_type_is_named_as_in_arrow_numpy_or_pandas(named: Any, type_: pa.DataType) -> None:
    """The order of the columns stays."""
    schema = schema_of(schema_text({"z": named, "a": "int8"}))
    assert schema.remove_metadata() == pa.schema([("z", type_), ("a", pa.int8())])


def test_an_empty_frame_gives_its_types_back() -> None:
    """Those of pandas, too, which Arrow does not have."""
    frame = pd.DataFrame(
        {
            "a": pd.Series(dtype="Int8"),
            "b": pd.Series(dtype="datetime64[s]"),
            "c": pd.Series(dtype="boolean"),
        }
    )
    empty = schema_of(schema_text(frame)).empty_table().to_pandas()
    assert dict(empty.dtypes) == dict(frame.dtypes)


def test_a_dictionary_of_views_is_one_of_text() -> None:
    """Neither Parquet nor a cast of Arrow takes the former."""
    coded = pa.dictionary(pa.int8(), pa.string_view())
    schema = pa.schema([("x", coded)])
    assert schema_of(schema_text(schema)).types == [pa.dictionary(pa.int32(), pa.large_string())]
    views = pa.DictionaryArray.from_arrays(
        pa.array([0, 1], pa.int8()), pa.array(["a", "b"], pa.string_view())
    )
    assert brought(schema, pa.table({"x": views}))["x"].to_pylist() == ["a", "b"]


# ---- rows ----

SCHEMA = {"n": "int64", "text": "string"}
SAME: dict[str, Any] = {
    "a frame": pd.DataFrame({"n": [1, 2], "text": ["a", None]}),
    "another order": pd.DataFrame({"text": ["a", None], "n": [1, 2]}),
    "whole floats": pd.DataFrame({"n": [1.0, 2.0], "text": ["a", None]}),
    "objects": pd.DataFrame({"n": [1, 2], "text": ["a", None]}, dtype=object),
    "small integers": pa.table({"n": pa.array([1, 2], pa.uint8()), "text": ["a", None]}),
    "decimals": pa.table({"n": [Decimal(1), Decimal(2)], "text": ["a", None]}),
    "polars": pl.DataFrame({"n": [1, 2], "text": ["a", None]}).to_arrow(),
    "categories": pd.DataFrame({"n": [1, 2], "text": pd.Categorical(["a", None])}),
}


@pytest.mark.parametrize("kind", SAME)
def test_rows_are_brought_into_the_schema(kind: str) -> None:
    """By name and order, where no value is lost."""
    table = brought(SCHEMA, SAME[kind])
    assert table.schema.remove_metadata() == schema_of(schema_text(SCHEMA))
    assert table.to_pydict() == {"n": [1, 2], "text": ["a", None]}


def test_numbers_that_fit_are_brought_into_any_type_of_numbers() -> None:
    """Arrow itself looks at the types of some, and not at the values."""
    numbers = pd.DataFrame({"x": [1, 2**54]})
    assert brought({"x": "float"}, numbers)["x"].to_pylist() == [1.0, 2.0**54]
    assert brought({"x": pa.decimal128(20, 2)}, numbers)["x"].to_pylist() == [1, 2**54]


def test_a_column_of_nulls_is_one_of_any_type() -> None:
    """Pandas has floats where all is null."""
    frame = pd.DataFrame({"n": [np.nan, np.nan], "text": [np.nan, np.nan]})
    assert brought(SCHEMA, frame).to_pydict() == {"n": [None, None], "text": [None, None]}


@pytest.mark.parametrize(
    "empty", [pd.DataFrame({"n": [], "text": []}), pa.table({"text": [], "n": []})]
)
def test_no_rows_have_the_columns_of_the_schema(empty: Any) -> None:
    """Types of no values are not compared."""
    assert brought(SCHEMA, empty).schema.names == ["n", "text"]
    with pytest.raises(ReturnTypeError, match="columns"):
        brought({"n": "int8"}, empty)


LOST: dict[str, tuple[Any, Any, str]] = {
    "a fraction": ("int64", [1.0, 3.5], "is double in mini-batch 7, .* int64: .* row 4 shows: 3.5"),
    "a word": (
        "int64",
        ["a", "b"],
        "is (large_)?string in mini-batch 7, .* int64: .*row 3 shows: a",
    ),
    "a number as text": ("string", [1, 2], "is int64 in mini-batch 7, .* string: .*row 3 shows: 1"),
    "too large": ("int8", [1, 300], "is int64 in mini-batch 7, .* int8: .* row 4 shows: 300"),
    "a rounded number": (
        "float",
        [2**54, 2**53 + 1],
        "is int64 in mini-batch 7, .* double: .* row 4 shows: 9007199254740993",
    ),
    "a cent": (
        pa.decimal128(5, 1),
        [Decimal("1.5"), Decimal("1.25")],
        "is decimal128.3, 2. in mini-batch 7, .* row 4 shows: 1.25",
    ),
    "part of a second": (
        "timestamp[s]",
        pd.to_datetime(["2020-01-01 00:00:00.0", "2020-01-01 00:00:00.5"]),
        "is timestamp.* in mini-batch 7, .* timestamp.s.: .* row 4 shows: 2020",
    ),
    "a time": (
        "date32",
        pd.to_datetime(["2020-01-01 00:00", "2020-01-01 05:00"]),
        "is timestamp.* in mini-batch 7, .* date32.*row 3 shows: 2020",
    ),
    "a truth": ("int64", [True, False], "is bool in mini-batch 7, .* int64: .*row 3 shows: "),
    "several types": (
        "int64",
        [1, "b"],
        "has no one type in mini-batch 7, as row 4 shows, a str: 'b'",
    ),
    "a time among dates": (
        "date32",
        pd.Series([dt.date(2020, 1, 1), dt.datetime(2020, 1, 1, 5)], dtype=object),  # noqa: DTZ001
        "has no one type in mini-batch 7, as row 4 shows, a datetime.datetime: ",
    ),
    "a nanosecond of an object": (
        "timestamp[us]",
        pd.Series([None, pd.Timestamp("2020-01-01 00:00:00.000000001")], dtype=object),
        "is timestamp.ns. in mini-batch 7, .* timestamp.us.: .* row 4 shows: 2020",
    ),
    "a list": ("int64", [[1], [2]], "is list.* in mini-batch 7"),
}


@pytest.mark.parametrize("case", LOST)
def test_a_value_that_would_be_lost_is_named(case: str) -> None:
    """With its mini-batch, column and row, counted over all that run() returned, and both types."""
    type_, values, said = LOST[case]
    before = pa.table({"x": pa.nulls(3)})
    with pytest.raises(ReturnTypeError, match=f"column 'x' {said}"):
        brought({"x": type_}, before, pd.DataFrame({"x": values}))


COLUMNS: dict[str, tuple[Any, str]] = {
    "missing": ({"n": [1]}, r"lacks the columns \['text'\]"),
    "unknown": ({"n": [1], "text": ["a"], "more": [1]}, r"has the columns \['more'\] besides"),
    "numbered": ([[1, 2]], r"lacks the columns \['n', 'text'\] and has the columns \['0', '1'\]"),
}


@pytest.mark.parametrize("case", COLUMNS)
def test_other_columns_are_refused(case: str) -> None:
    """The message names both."""
    data, said = COLUMNS[case]
    with pytest.raises(ReturnTypeError, match=f"mini-batch {MINI_BATCH}.*{said}"):
        brought(SCHEMA, pd.DataFrame(data))


def test_a_null_is_refused_where_the_schema_has_none() -> None:
    """A field of Arrow may say so."""
    schema = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    with pytest.raises(ReturnTypeError, match="row 1 is null"):
        brought(schema, pd.DataFrame({"x": [1, None]}))
    assert brought(schema, pd.DataFrame({"x": [1, 2]}))["x"].to_pylist() == [1, 2]


@given(
    values=st.lists(st.integers(-(2**33), 2**33) | st.integers(-200, 200), min_size=1),
    width=st.sampled_from(sorted(WIDTHS)),
    cut=st.integers(0, 20),
)
def test_integers_fit_or_the_first_that_does_not_is_named(
    values: list[int], width: int, cut: int
) -> None:
    """However the rows come in blocks."""
    wrong = [
        row for row, one in enumerate(values) if not -(2 ** (width - 1)) <= one < 2 ** (width - 1)
    ]
    blocks = [pa.table({"x": pa.array(part, pa.int64())}) for part in (values[:cut], values[cut:])]
    if not wrong:
        assert brought({"x": WIDTHS[width]}, *blocks)["x"].to_pylist() == values
        return
    with pytest.raises(ReturnTypeError, match=f"as row {wrong[0]} shows: {values[wrong[0]]} "):
        brought({"x": WIDTHS[width]}, *blocks)


@given(values=st.lists(st.floats(allow_nan=False), min_size=1))
def test_floats_become_integers_or_the_first_that_does_not_is_named(values: list[float]) -> None:
    """Infinity and fractions are none; -0.0 is 0."""
    wrong = [row for row, one in enumerate(values) if not (one.is_integer() and abs(one) < 2**63)]
    frame = pd.DataFrame({"x": values})
    if not wrong:
        assert brought({"x": "int64"}, frame)["x"].to_pylist() == [int(one) for one in values]
        return
    with pytest.raises(ReturnTypeError, match=f"as row {wrong[0]} shows: "):
        brought({"x": "int64"}, frame)


@given(micros=st.lists(st.integers(-(10**15), 10**15), min_size=1))
def test_times_lose_no_part(micros: list[int]) -> None:
    """A timestamp fits into a coarser unit if it is whole there."""
    epoch = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - without a zone
    times = [epoch + dt.timedelta(microseconds=one) for one in micros]
    wrong = [row for row, one in enumerate(micros) if one % 1000]
    table = pa.table({"x": pa.array(times, pa.timestamp("us"))})
    if not wrong:
        assert brought({"x": "timestamp[ms]"}, table)["x"].to_pylist() == times
        return
    with pytest.raises(ReturnTypeError, match=f"as row {wrong[0]} shows: "):
        brought({"x": "timestamp[ms]"}, table)


REFUSED: dict[str, Callable[[], Any]] = {
    "no columns": dict,
    "rows": lambda: pd.DataFrame({"a": [1]}),
    "objects": lambda: {"a": "object"},
    "categories of nothing": lambda: {"a": "category"},
    "no type": lambda: {"a": None},
    "a type of pandas that no name says": lambda: {"a": "decimal128(9, 2)[pyarrow]"},
    "two columns of a name": lambda: pa.schema([("a", pa.int8()), ("a", pa.int8())]),
    "numbers as names": lambda: {1: "int64"},
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_a_schema_is_refused(case: str) -> None:
    """Before a job begins."""
    with pytest.raises((TypeError, ValueError)):
        schema_text(REFUSED[case]())
