"""The size of rows in memory."""

from __future__ import annotations

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
