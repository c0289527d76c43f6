"""A frame of some rows of a table, of which small slices are copied.

To make a frame of a row takes Arrow and pandas a third of a millisecond, as long as for a hundred
rows, and to copy a row out of a frame a quarter of that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa

from daskprs._arrow.sizes import size_bytes

if TYPE_CHECKING:
    from daskprs._arrow.arrow_pandas import ToPandas

ROWS = 64
"""Rows of a block."""
MOST_ROWS = 16
"""Rows of a slice that is copied out of a block, at most."""
MOST_BYTES = 1 << 18
"""Bytes of a block at most: some of its rows may not be wanted."""


class FrameBlock:
    """Makes frames of slices of one table, several small ones at a time.

    Each frame is the same as one that is made of its slice alone. A table gets no block if its
    columns would have other types than those of an empty frame, if a value can be changed in place
    (a list), or if the rows beside a slice cannot be made a frame.
    """

    def __init__(self, form: ToPandas) -> None:
        self._form = form
        self._dtypes = [*form.meta().dtypes]
        self._table: pa.Table | None = None
        self._start = 0
        self._block: pd.DataFrame | None = None

    def frame(self, table: pa.Table, start: int, count: int) -> pd.DataFrame:
        """Return the rows of a slice, with an index from 0."""
        if count > MOST_ROWS:
            return self._form.frame(table.slice(start, count))
        first = start - self._start
        if self._table is not table or self._block is None or first < 0:
            return self._begun(table, start, count)
        if first + count > len(self._block):
            return self._begun(table, start, count)
        return _copied(self._block, first, count)

    def _begun(self, table: pa.Table, start: int, count: int) -> pd.DataFrame:
        """Make the block that begins with a slice, and return the frame of the slice."""
        self._table, self._start, self._block = table, start, None
        rows = table.slice(start, ROWS)
        if size_bytes(rows) <= MOST_BYTES and all(map(_is_flat, rows.schema.types)):
            try:
                block = self._form.frame(rows)
            except Exception:  # noqa: BLE001 - a value of other rows, of which this one knows nothing
                block = None
            if block is not None and [*block.dtypes] == self._dtypes:
                self._block = block
                return _copied(block, 0, count)
        return self._form.frame(table.slice(start, count))


def _copied(block: pd.DataFrame, first: int, count: int) -> pd.DataFrame:
    rows = block.iloc[first : first + count].copy()
    rows.index = pd.RangeIndex(len(rows))
    return rows


def _is_flat(type_: pa.DataType) -> bool:
    """Say whether no value of a type can be changed in place, as a list can."""
    if pa.types.is_dictionary(type_):
        return _is_flat(type_.value_type)
    return not pa.types.is_nested(type_) and not isinstance(type_, pa.BaseExtensionType)
