"""The size of rows in memory, and slices without the rest of it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def size_bytes(rows: pa.Table | pa.RecordBatch | pa.Array) -> int:
    """Return the bytes of rows in memory.

    Before version 24, Arrow measures no slice of views of text or bytes. There, the bytes are those
    of the buffers, which may hold other rows, too.
    """
    try:
        return int(rows.nbytes)
    except pa.ArrowTypeError:
        return int(rows.get_total_buffer_size())


def slice_alone(array: pa.Array) -> Any:
    """Return how a pickle makes an array anew, without the rows beside a slice.

    Arrow pickles the whole memory of a slice: that of each row would be the memory of all rows.
    """
    if array.get_total_buffer_size() <= 2 * size_bytes(array):
        return NotImplemented
    return pa.concat_arrays([array]).__reduce__()
