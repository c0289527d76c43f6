"""The tables of the page of inputs that say what becomes of each type, made by loading a batch.

``python -m tests.support.types_tables`` writes them anew.
"""

from __future__ import annotations

import datetime as dt
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa

from daskprs.errors import InputError
from daskprs.inputs.open_source import open_source
from daskprs.inputs.source.batch_format import batch_form
from daskprs.inputs.source.read_options import BatchFormat, ReadOptions
from tests.support.reference_page import filled

if TYPE_CHECKING:
    from collections.abc import Iterable

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "input.md"
NOON = dt.datetime(2026, 1, 2, 12)  # noqa: DTZ001 - of no zone
REFUSED = "refused"
ARROW: list[tuple[pa.DataType, Any]] = [
    (pa.int64(), 1),
    (pa.uint8(), 1),
    (pa.float32(), 1.5),
    (pa.bool_(), True),
    (pa.string(), "x"),
    (pa.string_view(), "x"),
    (pa.binary(), b"x"),
    (pa.decimal128(9, 2), Decimal("1.50")),
    (pa.decimal256(50, 2), Decimal("1.50")),
    (pa.date32(), NOON.date()),
    (pa.time64("us"), NOON.time()),
    (pa.timestamp("us"), NOON),
    (pa.timestamp("us", "Europe/Rome"), NOON),
    (pa.duration("us"), dt.timedelta(1)),
    (pa.month_day_nano_interval(), (1, 2, 3)),
    (pa.dictionary(pa.int32(), pa.string()), "x"),
    (pa.list_(pa.int64()), [1]),
    (pa.struct([("a", pa.int64())]), {"a": 1}),
    (pa.map_(pa.string(), pa.int64()), [("a", 1)]),
    (pa.null(), None),
]
if hasattr(pa, "uuid"):
    ARROW.append((pa.uuid(), UUID(int=1).bytes))
PANDAS: dict[str, pd.Series] = {
    "float64 with NaN": pd.Series([1.5, np.nan]),
    "Int64 with NA": pd.Series([1, None], dtype="Int64"),
    "str": pd.Series(["x", None], dtype="str"),
    "object: text": pd.Series(["x", None], dtype=object),
    "object: lists": pd.Series([[1], None]),
    "object: numbers and text": pd.Series([1, "x"]),
    "datetime64[ns, UTC]": pd.Series(pd.to_datetime([NOON, None]).tz_localize("UTC").as_unit("ns")),
    "timedelta64[s]": pd.Series(pd.to_timedelta([1, None], unit="s").as_unit("s")),
    "category": pd.Series(["x", None], dtype=pd.CategoricalDtype(["x", "y"])),
    "period[D]": pd.Series(pd.period_range("2026-01-01", periods=2)),
    "Sparse[int64, 0]": pd.Series(pd.arrays.SparseArray([0, 1])),
    "complex128": pd.Series([1j]),
    "decimal128(9, 2)[pyarrow]": pd.Series([Decimal(1)], dtype=pd.ArrowDtype(pa.decimal128(9, 2))),
}


def tables() -> dict[str, str]:
    """Return the table for Arrow and the one for pandas."""
    head = ["Arrow", "pandas", "pandas, beside nulls", "numpy, beside nulls", "polars"]
    return {
        "types of Arrow": _table(head, map(_of_arrow, ARROW)),
        "types of pandas": _table(
            ["pandas", "numpy", "pyarrow", "polars"],
            (
                [name, *map(_cell_of(column), ("numpy", "pyarrow", "polars"))]
                for name, column in PANDAS.items()
            ),
        ),
    }


def _of_arrow(case: tuple[pa.DataType, Any]) -> list[str]:
    type_, value = case
    storage = type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_
    arrays = []
    for cells in ([value], [value, None]):
        if pa.types.is_dictionary(type_):
            array = pa.array(cells, type_.value_type).dictionary_encode()
        else:
            array = pa.array(cells, storage)
        if storage is not type_:
            array = pa.ExtensionArray.from_storage(type_, array)
        arrays.append(pa.table({"x": array}))
    some, with_null = arrays
    name = str(type_).replace("dictionary<values=string, indices=int32, ordered=0>", "dictionary")
    return [
        name,
        _type_of(some, "pandas"),
        _type_of(with_null, "pandas"),
        _type_of(with_null, "numpy"),
        _type_of(with_null, "polars"),
    ]


def _cell_of(column: pd.Series) -> Any:
    return lambda batch_format: _type_of(pd.DataFrame({"x": column}), batch_format)


def _type_of(data: Any, batch_format: BatchFormat) -> str:
    """Return the type of the column ``x`` in a mini-batch."""
    try:
        source = open_source(data, ReadOptions(batch_format=batch_format))
    except InputError:
        return REFUSED
    with tempfile.TemporaryDirectory() as folder:
        source.prepare(Path(folder))
        reader = source.reader()
        rows = reader.load(next(source.mini_batches()))
        form = batch_form(source, batch_format)
        made: Any = rows if form is None else form.of(rows)
        reader.close()
    match batch_format:
        case "pandas" | "numpy":
            return _named(made["x"])
        case "pyarrow":
            return str(made.schema.field("x").type)
        case "polars":
            return str(made.schema["x"])


def _named(column: Any) -> str:
    """Return the type of a column; of objects, also what these are."""
    if column.dtype != object:
        return str(column.dtype)
    present = [
        type(one).__name__ for one in column if isinstance(one, list | dict) or one is not None
    ]
    return f"object: {present[0]}" if present else "object"


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    lines += [f"| {' | '.join(f'`{cell}`' for cell in row)} |" for row in rows]
    return "\n".join(lines).replace(f"`{REFUSED}`", REFUSED)


def written(page: str) -> str:
    """Return the page with its tables as they ought to be."""
    return filled(page, tables())


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
