"""Rows with their types: written piece by piece in agents, read back as one frame.

A piece is a kind, a length, and bytes. Pieces of different mini-batches can be put together in
any order by copying. Frames are Arrow streams where Arrow gives back the very frame, else
pickles; elements of lists are pickles.
"""

from __future__ import annotations

import pickle
import struct
from typing import IO, TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
from pandas.testing import assert_frame_equal

from daskprs.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD = struct.Struct("<cQ")
ARROW, PICKLE, ELEMENTS = b"A", b"P", b"E"
RESULT = "result"
"""The name of the column that elements of lists make."""


def encode_frame(frame: pd.DataFrame) -> bytes:
    """Return a piece that holds a frame without its index."""
    frame = frame.reset_index(drop=True)
    body = _arrow(frame)
    if body is not None:
        return _HEAD.pack(ARROW, len(body)) + body
    pickled = pickle.dumps(frame, protocol=5)
    return _HEAD.pack(PICKLE, len(pickled)) + pickled


def encode_elements(elements: list[Any]) -> bytes:
    """Return a piece that holds elements of a list."""
    body = pickle.dumps(elements, protocol=5)
    return _HEAD.pack(ELEMENTS, len(body)) + body


def decode(file: IO[bytes], length: int) -> Iterator[pd.DataFrame]:
    """Yield the frames of the pieces in the next `length` bytes."""
    while length > 0:
        kind, size = _HEAD.unpack(file.read(_HEAD.size))
        body = file.read(size)
        length -= _HEAD.size + size
        match kind:
            case b"A":
                with pa.ipc.open_stream(body) as stream:
                    yield stream.read_all().to_pandas()
            case b"P":
                yield pickle.loads(body)
            case b"E":
                elements = pickle.loads(body)
                yield pd.DataFrame({RESULT: pd.Series(elements, dtype=_dtype_of(elements))})
            case _:
                msg = f"typed rows: a piece of an unknown kind {kind!r}."
                raise JournalError(msg)


def _dtype_of(elements: list[Any]) -> str | None:
    """Let pandas find the type of plain values; keep everything else as it is."""
    plain = all(type(element) in (int, float, bool, str) for element in elements)
    return None if plain and len({type(element) for element in elements}) == 1 else "object"


def _arrow(frame: pd.DataFrame) -> bytes | None:
    """Return an Arrow stream of the frame, if the very same frame comes out of it."""
    try:
        table = pa.Table.from_pandas(frame, preserve_index=False)
        if _needs_a_check(frame):
            assert_frame_equal(table.to_pandas(), frame, check_exact=True, check_flags=False)
    except (pa.ArrowException, AssertionError, TypeError, ValueError, OverflowError):
        return None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def _needs_a_check(frame: pd.DataFrame) -> bool:
    """Say whether a column is of a kind that Arrow might change; numbers and strings are not."""
    return any(dtype.kind not in "biufM" for dtype in frame.dtypes) or frame.columns.has_duplicates
