"""The input's columns of failed items, as bytes that travel with an outcome."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from daskprs._inputs.source.batch_format import piece_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daskprs._core.pieces import FailedItems

PATH = "path"
"""The column of files."""
MOST_BYTES = 1 << 20
"""Largest size of the columns, which the journal holds; larger ones are left out."""
NO_ARROW = (pa.ArrowException, OverflowError, TypeError, ValueError)


def rows_as_bytes(data: Any, failed: Sequence[FailedItems]) -> bytes:
    """Return failed items of the argument of `run` as an Arrow stream; empty if it is too large."""
    tables = [_table(piece_of(data, one.start, one.stop)) for one in failed]
    table = pa.concat_tables(tables, promote_options="permissive")
    if table.nbytes > MOST_BYTES:
        return b""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue()


def _table(items: Any) -> pa.Table:
    if isinstance(items, pa.Table):
        return items.replace_schema_metadata(None)
    if isinstance(items, list):
        return pa.table({PATH: [str(one) for one in items]})
    if isinstance(items, dict) or not isinstance(items, pd.DataFrame):
        items = pd.DataFrame({name: list(one) for name, one in _columns(items)})
    return pa.table({str(name): _column(items[name]) for name in dict.fromkeys(items.columns)})


def _columns(items: Any) -> Any:
    return items.items() if isinstance(items, dict) else items.to_dict(as_series=True).items()


def _column(column: Any) -> pa.Array:
    """Return a column as Arrow holds it, or as text."""
    if isinstance(column, pd.DataFrame):  # of columns with one name
        column = column.iloc[:, 0]
    try:
        return pa.array(column, from_pandas=True)
    except NO_ARROW:
        return pa.array([str(one) for one in column])
