"""The input's columns of failed items, as bytes that travel with an outcome."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from daskprs._arrow.exact_casts import MISFITS
from daskprs._arrow.mixed_tables import as_text, common_schema, in_schema, in_utf8
from daskprs._arrow.sizes import size_bytes
from daskprs._inputs.source.batch_format import piece_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daskprs._core.pieces import FailedItems

PATH = "path"
"""The column of files."""
MOST_BYTES = 1 << 20
"""Largest size of the columns, which the journal holds; larger ones are left out."""


def rows_as_bytes(data: Any, failed: Sequence[FailedItems]) -> bytes:
    """Return failed items of the argument of `run` as an Arrow stream; empty if it is too large."""
    tables = [_table(piece_of(data, one.start, one.stop)) for one in failed]
    if sum(map(size_bytes, tables)) > MOST_BYTES:
        return b""
    schema = common_schema(one.schema for one in tables)
    table = _for_parquet(pa.concat_tables(in_schema(one, schema) for one in tables))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue()


def _table(items: Any) -> pa.Table:
    if isinstance(items, pa.Table):
        names = [in_utf8(name) for name in items.column_names]
        return items.replace_schema_metadata(None).rename_columns(names)
    if isinstance(items, list):
        return pa.table({PATH: as_text(items)})
    if isinstance(items, dict) or not isinstance(items, pd.DataFrame):
        items = pd.DataFrame({name: list(one) for name, one in _columns(items)})
    return pa.table(
        {in_utf8(str(name)): _column(items[name]) for name in dict.fromkeys(items.columns)}
    )


def _columns(items: Any) -> Any:
    return items.items() if isinstance(items, dict) else items.to_dict(as_series=True).items()


def _column(column: Any) -> pa.Array:
    """Return a column as Arrow holds it, or as text."""
    if isinstance(column, pd.DataFrame):  # of columns with one name
        column = column.iloc[:, 0]
    try:
        return pa.array(column, from_pandas=True)
    except MISFITS:
        return as_text(column)


def _for_parquet(table: pa.Table) -> pa.Table:
    """Return a table with text for columns of types that Parquet does not have."""
    import pyarrow.parquet as pq  # takes 7 ms, and most processes have no failed items

    for number, field in enumerate(table.schema):
        column = table.column(number)
        try:
            pq.write_table(pa.table([column], pa.schema([field])), io.BytesIO())
        except MISFITS:
            table = table.set_column(number, field.name, as_text(column.to_pylist()))
    return table
