"""The tables of the page of types that say what becomes of each type, made by loading a batch.

``python -m tests.support.types_tables`` writes them anew.
"""

from __future__ import annotations

import datetime as dt
import tempfile
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from dask.dataframe.utils import UNKNOWN_CATEGORIES

from daskprs._core.mini_batch import MiniBatch
from daskprs._inputs.collections.staged_reader import StagedReader
from daskprs._inputs.collections.staging import StagedPartition, staged
from daskprs._inputs.collections.staging_form import (
    StagingForm,
    form_of_arrays,
    form_of_frames,
    form_of_objects,
)
from daskprs._inputs.open_source import open_source
from daskprs._inputs.source.batch_format import BatchForm, batch_form
from daskprs._inputs.source.pieces import PartitionSlice
from daskprs._inputs.source.read_options import BatchFormat, ReadOptions
from daskprs._inputs.source.sizes import Size
from daskprs.errors import InputError, LoadError, class_name
from tests.support.filled_page import filled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "input-types.md"
NOON = dt.datetime(2026, 1, 2, 12)  # noqa: DTZ001 - of no zone
REFUSED = "refused"
FORMATS: tuple[BatchFormat, ...] = ("pandas", "numpy", "pyarrow", "polars")
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


UNKNOWN = pd.Series([], dtype=pd.CategoricalDtype([UNKNOWN_CATEGORIES]))
"""What Dask announces where each partition has categories of its own."""
OF_DASK: list[tuple[str, pd.Series, pd.Series]] = [
    ("unknown categories", UNKNOWN, pd.Series(["x", None], dtype="category")),
    ("`float64`, but the partition is `int64`", pd.Series([], dtype="float64"), pd.Series([1])),
    ("`int64`, but the partition is `float64`", pd.Series([], dtype="int64"), pd.Series([1.5])),
    (
        "categories, but the partition has others",
        pd.Series([], dtype=pd.CategoricalDtype(["x"])),
        pd.Series(["y"], dtype="category"),
    ),
]
"""What is announced for a column, and what a partition then has."""
ROWS = pd.DataFrame({"x": [1, 2]})
VALUES: list[tuple[str, StagingForm, Any]] = [
    ("a block of an Array", form_of_arrays(ReadOptions()), np.arange(2.0)),
    ("a masked block", form_of_arrays(ReadOptions()), np.ma.array([1, 2], mask=[0, 1])),
    ("a partition of a Bag", form_of_objects(ReadOptions(), is_bag=True), range(2)),
    *(
        (name, form_of_objects(ReadOptions(), is_bag=False), value)
        for name, value in {
            "a list": [1, 2],
            "a tuple": (1, 2),
            "a DataFrame": ROWS,
            "a Series": ROWS["x"],
            "an Arrow table": pa.table({"x": [1, 2]}),
            "an Arrow batch": pa.record_batch({"x": [1, 2]}),
            "a polars frame": pl.DataFrame({"x": [1, 2]}),
            "an array": np.arange(2),
            "a dict": {"x": [1, 2]},
            "any other object": Decimal(1),
        }.items()
    ),
]
"""Partitions that nothing announces as tables; the last ones are results of Delayed or Future."""


def tables() -> dict[str, str]:
    """Return the tables for Arrow, for pandas and for partitions of collections."""
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
        "types of partitions": _table(
            ["announced", *FORMATS],
            [
                *([f"`{name}`", *_staged(one.iloc[:0], one)] for name, one in PANDAS.items()),
                *([f"`{one.dtype}`", *_staged(one.iloc[:0], one)] for one in _arrow_columns()),
                *([name, *_staged(meta, column)] for name, meta, column in OF_DASK),
            ],
            code=False,
        ),
        "values of partitions": _table(
            ["partition", "`run` gets", "items", "with `mini_batch_size=1`"],
            (_of_value(name, form, value) for name, form, value in VALUES),
            code=False,
        ),
    }


def _arrow_columns() -> Iterator[pd.Series]:
    """Yield columns of Arrow in pandas, of the types that pandas can filter."""
    odd = {"string_view", "decimal128(9, 2)"}  # the latter stands among those of pandas
    for type_, value in ARROW:
        is_odd = isinstance(type_, pa.BaseExtensionType) or pa.types.is_dictionary(type_)
        if not is_odd and str(type_) not in odd:
            yield pd.Series(pd.array([value, None], dtype=pd.ArrowDtype(type_)))


def _staged(meta: pd.Series, column: pd.Series) -> list[str]:
    """Return the type of a column of a partition in each format."""
    found = []
    for batch_format in FORMATS:
        try:
            form = form_of_frames(meta.to_frame("x"), ReadOptions(batch_format=batch_format))
            with tempfile.TemporaryDirectory() as folder:
                (rows,) = _read(staged(column.to_frame("x"), 0, form, Path(folder)), Path(folder))
        except (InputError, LoadError):
            found.append(REFUSED)
            continue
        if batch_format != "pandas":
            rows = BatchForm(batch_format, {}, keeps_nan=True).of(rows)
        found.append(f"`{_type_in(rows, batch_format)}`")
    return found


def _of_value(name: str, form: StagingForm, value: Any) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        whole = staged(value, 0, form, Path(folder))
        (got,) = _read(whole, Path(folder))
        cut = staged(value, 0, replace(form, size=Size(1)), Path(folder))
        pieces = len([*cut.cut.slices()])
        return [
            name,
            f"`{class_name(type(got))}`",
            str(whole.cut.rows),
            f"{pieces} mini-batches" if pieces > 1 else "not cut",
        ]


def _read(partition: StagedPartition, folder: Path) -> list[Any]:
    cut = partition.cut
    with closing(StagedReader()) as reader:
        return [
            reader.load(
                MiniBatch(
                    0,
                    partition.placed(PartitionSlice(0, start, stop, cut.digest), folder),
                    "",
                    stop - start,
                )
            )
            for start, stop in cut.slices()
        ]


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
    return _type_in(made, batch_format)


def _type_in(made: Any, batch_format: BatchFormat) -> str:
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


def _table(head: list[str], rows: Iterable[list[str]], *, code: bool = True) -> str:
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    shown = "`{}`" if code else "{}"
    lines += [f"| {' | '.join(map(shown.format, row))} |" for row in rows]
    return "\n".join(lines).replace(f"`{REFUSED}`", REFUSED)


def written(page: str) -> str:
    """Return the page with its tables as they ought to be."""
    return filled(page, tables())


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
