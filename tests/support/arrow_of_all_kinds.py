"""Hypothesis strategies: Arrow tables with columns of every type, nested ones included."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Iterable

TEXTS = st.text(max_size=4)
DAYS = st.integers(-30_000, 40_000)
MOMENTS = st.integers(-(2**40), 2**40)
FLAT: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.null(), st.none()),
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-128, 127)),
    (pa.uint16(), st.integers(0, 2**16 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float16(), st.floats(width=16)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.decimal128(9, 2), st.integers(-(10**8), 10**8).map(lambda cents: Decimal(cents) / 100)),
    (pa.string(), TEXTS),
    (pa.large_string(), TEXTS),
    (pa.string_view(), TEXTS),
    (pa.binary(), st.binary(max_size=4)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.date32(), DAYS),
    (pa.time64("us"), st.integers(0, 86_399_999_999)),
    (pa.timestamp("s"), DAYS),
    (pa.timestamp("ms"), MOMENTS),
    (pa.timestamp("ns", "Europe/Vienna"), MOMENTS),
    (pa.duration("us"), st.timedeltas(timedelta(-9), timedelta(9))),
    (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "b", ""])),
    (pa.dictionary(pa.int32(), pa.int64(), ordered=True), st.sampled_from([3, 2**40])),
]
Typed = tuple[pa.DataType, st.SearchStrategy[Any]]


def _deeper(one: Typed) -> list[Typed]:
    type_, values = one
    inner = values | st.none()
    some = st.lists(inner, max_size=2)
    return [
        (pa.list_(type_), some),
        (pa.large_list(type_), some),
        (pa.list_(type_, 2), st.lists(inner, min_size=2, max_size=2)),
        (
            pa.struct([("a", type_), ("b", pa.string())]),
            st.fixed_dictionaries({"a": inner, "b": TEXTS}),
        ),
    ]


NESTED = [
    deep
    for one in FLAT
    if not pa.types.is_dictionary(one[0]) and not pa.types.is_string_view(one[0])
    for deep in _deeper(one)
]
MAPS = [
    (pa.map_(pa.string(), pa.int64()), st.dictionaries(TEXTS, st.integers(0, 9)).map(list_of))
    for list_of in [lambda drawn: list(drawn.items())]
]
TYPES: list[Typed] = [*FLAT, *NESTED, *MAPS]
NAMES = st.text(st.sampled_from("abc é\U0001f600\"'"), max_size=4)


@st.composite
def tables(draw: st.DrawFn, kinds: Iterable[Typed] = TYPES, min_columns: int = 0) -> pa.Table:
    """Return a table of up to four columns and six rows, in one or more chunks."""
    rows = draw(st.integers(0, 6))
    names = draw(st.lists(NAMES, min_size=min_columns, max_size=4, unique=True))
    chosen = [draw(st.sampled_from(list(kinds))) for _ in names]
    columns = []
    for type_, values in chosen:
        cells = draw(st.lists(values | st.none(), min_size=rows, max_size=rows))
        at = draw(st.integers(0, rows))
        columns.append(pa.chunked_array([pa.array(cells[:at], type_), pa.array(cells[at:], type_)]))
    return pa.table(columns, names=names)
