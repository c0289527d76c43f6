"""The one schema of rows from many mini-batches."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskprs._arrow.exact_casts import cast_exactly, settled_type
from daskprs._output.rows.row_schema import RowSchema
from daskprs.errors import ReturnTypeError
from tests.support.arrow_of_all_kinds import FLAT, TYPES, tables

if TYPE_CHECKING:
    from collections.abc import Iterable


def settled(*schemas: pa.Schema) -> RowSchema:
    """Return the schema that these mini-batches settle."""
    schema = RowSchema()
    for mini_batch, one in enumerate(schemas):
        schema.add(one, mini_batch)
    return schema


def same(one: Any, other: Any) -> bool:
    """Say whether two lists of values are the same; a NaN equals a NaN."""
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same(sorted(one.items()), sorted(other.items()))
    if isinstance(one, tuple):
        return same(list(one), list(other))
    if isinstance(one, float) and math.isnan(one):
        return isinstance(other, float) and math.isnan(other)
    return bool(one == other)


@given(table=tables())
def test_rows_of_one_schema_stay_as_they_are(table: pa.Table) -> None:
    """Values and types; only dictionaries get room for other values."""
    made = settled(table.schema).cast(table, 0)
    assert same(made.to_pylist(), table.to_pylist())
    for now, before in zip(made.schema, table.schema, strict=True):
        if not pa.types.is_dictionary(before.type):
            assert now.type == before.type
    made.validate(full=True)


@given(table=tables(min_columns=1))
def test_columns_of_nulls_take_the_first_type(table: pa.Table) -> None:
    """In whatever order they are, and the rows before become nulls of that type."""
    nulls = pa.table({name: pa.nulls(2) for name in reversed(table.column_names)})
    schema = settled(nulls.schema, table.schema)
    assert same(schema.cast(table, 1).select(table.column_names).to_pylist(), table.to_pylist())
    first = schema.cast(nulls, 0)
    assert first.schema == schema.schema
    assert all(column.null_count == 2 for column in first.columns)


NUMBERS = [one for one in FLAT if pa.types.is_integer(one[0]) or pa.types.is_floating(one[0])]


@given(one=st.sampled_from(NUMBERS), other=st.sampled_from(NUMBERS), drawn=st.data())
def test_numbers_are_cast_without_loss_or_not_at_all(
    one: Any, other: Any, drawn: st.DataObject
) -> None:
    """What is cast has the same values; the error names the first row that would lose its own."""
    values = drawn.draw(st.lists(one[1] | st.none(), max_size=4))
    table = pa.table({"x": pa.array(values, one[0])})
    schema = settled(pa.schema({"x": other[0]}))
    schema.add(table.schema, 1)
    bad = [row for row in range(len(values)) if not fits(table.slice(row, 1), schema)]
    if bad:
        types = f"'x' is {one[0]} in mini-batch 1, and mini-batch 0 has {other[0]}"
        with pytest.raises(ReturnTypeError, match=rf"{types}.*row {10 + bad[0]} shows"):
            schema.cast(table, 1, first_row=10)
        return
    made = schema.cast(table, 1)
    assert made.schema == pa.schema({"x": other[0]})
    assert same(values, made["x"].to_pylist())


def fits(table: pa.Table, schema: RowSchema) -> bool:
    """Say whether rows can be cast."""
    try:
        schema.cast(table, 0)
    except ReturnTypeError:
        return False
    return True


@given(one=st.sampled_from(TYPES), other=st.sampled_from(TYPES))
def test_values_stay_in_their_family(one: Any, other: Any) -> None:
    """Never from text to numbers or from numbers to booleans, nor back; families have two sides."""
    there, back = settled_type(one[0], other[0]), settled_type(other[0], one[0])
    assert (there is None) == (back is None)
    kinds = [family(type_) for type_ in (one[0], other[0])]
    if "null" not in kinds and kinds[0] != kinds[1]:
        assert there is None


def family(type_: pa.DataType) -> str:
    """Return a coarse family, in other words than the code under test."""
    name = (
        str(type_).partition("<")[2].partition(",")[0].removeprefix("values=")
        if str(type_).startswith("dictionary")
        else str(type_)
    )
    for word in ("null", "bool", "timestamp", "string", "binary", "date", "time", "duration"):
        if name.removeprefix("large_").removeprefix("fixed_size_").startswith(word):
            return word
    if "list" in name.partition("<")[0] or name.startswith(("struct", "map")):
        return "nested" if "list" in name.partition("<")[0] else name.partition("<")[0]
    return "number"


ENCODED = pa.array(["a"]).dictionary_encode()


@pytest.mark.parametrize(
    ("first", "later"),
    [
        (pa.array(["a"]), pa.array(["b"], pa.large_string())),
        (pa.array(["a"]), ENCODED),
        (ENCODED, pa.array(["b"], pa.string_view())),
        (
            pa.array(["a"]).dictionary_encode(),
            pa.array(["b"], pa.large_string()).dictionary_encode(),
        ),
        (pa.array([b"a"]), pa.array([b"b"], pa.binary(1))),
        (pa.array([[1]]), pa.array([[2, None]], pa.large_list(pa.int8()))),
        (pa.array([{"a": 1, "b": "x"}]), pa.array([{"b": "y", "a": None}])),
        (pa.array([[]]), pa.array([[{"a": [1.5]}]])),
        (pa.array([1.5]), pa.array([3])),
        (pa.array([1]), pa.array([3.0])),
        (pa.array([Decimal("1.50")], pa.decimal128(9, 2)), pa.array([2.25])),
        (pa.array([0], pa.timestamp("ns")), pa.array([7], pa.timestamp("s"))),
        (pa.array([0], pa.timestamp("s", "UTC")), pa.array([7], pa.timestamp("s", "Asia/Tokyo"))),
        (pa.array([0], pa.date32()), pa.array([86_400_000], pa.date64())),
        (pa.array(["a"]), pa.RunEndEncodedArray.from_arrays([2], ["b"])),
        (
            pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
            pa.array([[("k", 2)]], pa.map_(pa.large_string(), pa.int8())),
        ),
    ],
)
def test_a_later_type_of_the_family_is_cast(first: pa.Array, later: pa.Array) -> None:
    """No value changes."""
    schema = settled(pa.schema({"x": first.type}), pa.schema({"x": later.type}))
    made = schema.cast(pa.table({"x": later}), 1)["x"]
    assert same(made.to_pylist(), later.to_pylist())
    assert made.type == schema.schema.field("x").type


@pytest.mark.parametrize(
    ("first", "later", "why"),
    [
        (pa.int64(), pa.array(["1"]), "no common family"),
        (pa.string(), pa.array([1]), "no common family"),
        (pa.bool_(), pa.array([1]), "no common family"),
        (pa.int64(), pa.array([True]), "no common family"),
        (pa.timestamp("s"), pa.array([0], pa.timestamp("s", "UTC")), "no common family"),
        (pa.date32(), pa.array([0], pa.timestamp("s")), "no common family"),
        (pa.list_(pa.int64()), pa.array([["a"]]), "no common family"),
        (pa.struct({"a": pa.int64()}), pa.array([{"b": 1}]), "no common family"),
        (pa.int64(), pa.array([1.0, 2.5]), "row 1 shows: 2.5"),
        (pa.int8(), pa.array([1, 300]), "row 1 shows: 300"),
        (pa.float32(), pa.array([0.1]), "row 0 shows: 0.1"),
        (pa.timestamp("s"), pa.array([1_000, 1], pa.timestamp("ms")), "row 1 shows"),
        (pa.list_(pa.int8()), pa.array([[1], [2, 300]]), "row 1 shows"),
        (pa.float64(), pa.array([Decimal("0.1234567890123456789")]), "row 0 shows"),
    ],
)
def test_a_value_that_would_be_lost_is_named(first: Any, later: pa.Array, why: str) -> None:
    """With mini-batch, column, both types, the row, and what to write."""
    schema = RowSchema()
    schema.add(pa.schema({"id": first}), 3)
    with pytest.raises(ReturnTypeError) as raised:
        schema.cast(pa.table({"id": later}), 7)
    for part in (
        "'id'",
        "mini-batch 7",
        "mini-batch 3",
        str(first),
        str(later.type),
        why,
        "schema",
    ):
        assert part in str(raised.value)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a"], r"mini-batch 2 lacks the columns \['b'\]\."),
        (["b", "c", "a"], r"mini-batch 2 has the columns \['c'\] besides"),
        (["a", "b", "a"], "mini-batch 2 has two columns 'a'"),
    ],
)
def test_columns_are_matched_by_name(names: Iterable[str], message: str) -> None:
    """Their order does not matter; a missing one is an error, and so is one too many."""
    schema = settled(pa.schema({"a": pa.int64(), "b": pa.int64()}))
    assert schema.cast(pa.table({"b": [1], "a": [2]}), 1).column_names == ["a", "b"]
    table = pa.table([[1] for _ in names], names=list(names))
    with pytest.raises(ReturnTypeError, match=message):
        schema.cast(table, 2)


def test_a_given_schema_holds_from_the_start() -> None:
    """Rows are cast into it, and errors say that it was given."""
    schema = RowSchema(pa.schema([pa.field("x", pa.int16(), nullable=False)]))
    assert schema.is_settled
    assert schema.cast(pa.table({"x": [1]}), 0).schema == schema.schema
    with pytest.raises(ReturnTypeError, match=r"schema says int16: values .* row 0 shows: 99999"):
        schema.cast(pa.table({"x": [99999]}), 0)
    with pytest.raises(ReturnTypeError, match="row 1 is null"):
        schema.cast(pa.table({"x": [1, None]}), 0)


def test_a_schema_is_settled_when_no_type_is_null() -> None:
    """A list of nulls may still become a list of anything."""
    schema = settled(pa.schema({"x": pa.list_(pa.null())}))
    assert not schema.is_settled
    schema.add(pa.schema({"x": pa.list_(pa.string())}), 4)
    assert schema.is_settled
    with pytest.raises(ReturnTypeError, match="mini-batch 5"):
        schema.add(pa.schema({"x": pa.list_(pa.int64())}), 5)


@given(table=tables(min_columns=1))
def test_a_cast_checks_nested_values(table: pa.Table) -> None:
    """Into the type itself, every value fits."""
    for column in table.columns:
        assert same(cast_exactly(column, column.type).to_pylist(), column.to_pylist())
