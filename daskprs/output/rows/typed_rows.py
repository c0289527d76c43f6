"""Rows with their types: written in agents, read back as one frame.

The rows of one attempt are a run of pickles, so that those of different mini-batches can be put
together in any order. Measured against Arrow streams, pickles of frames are as small, 2 to 20
times as fast both ways, and give back every type exactly (Arrow makes arrays of lists in cells,
and has no complex numbers).
"""

from __future__ import annotations

import io
import pickle
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from daskprs.errors import JournalError, ReturnTypeError, class_name
from daskprs.output.rows.blocks import frames_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs.output.rows.blocks import Block
    from daskprs.output.spool import Sink

Kind = Literal["frame", "array", "element"]
WRITE_BYTES = 1 << 16
"""Bytes to which small pickles are joined; larger ones are written directly."""

RowNumbers = range | np.ndarray[Any, Any] | str
"""Rows of the mini-batch as the index of a returned frame numbers them, or one of these words."""
UNKNOWN = "unknown"
"""The index does not hold row numbers, or was not kept (by jobs of earlier versions)."""
NO_INDEX = "no index"
"""The rows are those of an array or an Arrow table, which have no index."""


class TypedPiece(NamedTuple):
    """One kept piece: a frame, an array with a row for each number, or an element."""

    kind: Kind
    value: Any
    numbers: RowNumbers = UNKNOWN


class TypedRows:
    """Pickles frames, arrays and elements one after the other."""

    def __init__(self, sink: Sink) -> None:
        self._buffer = io.BufferedWriter(sink, WRITE_BYTES)
        self._pickler = pickle.Pickler(self._buffer, protocol=5)

    def block(self, block: Block, *, has_index: bool) -> None:
        """Keep rows, and their numbers if an index holds them."""
        for frame in frames_of(block):
            self._frame(frame, has_index=has_index)

    def _frame(self, frame: pd.DataFrame, *, has_index: bool) -> None:
        numbers = row_numbers(frame.index) if has_index else NO_INDEX
        rows = frame.reset_index(drop=True)
        if isinstance(numbers, str) and numbers == UNKNOWN:
            self._dump(TypedPiece("frame", rows)[:2])
        else:
            self._dump(TypedPiece("frame", rows, numbers))

    def array(self, array: np.ndarray[Any, Any]) -> None:
        """Keep a one-dimensional array."""
        self._dump(("array", array))

    def element(self, element: Any) -> None:
        """Keep an element of a list."""
        self._dump(("element", element))

    def elements(self, elements: list[Any], _kinds: set[type]) -> None:
        """Keep elements of a list."""
        for element in elements:
            self._dump(("element", element))

    def flush(self) -> None:
        """Write the buffered rest."""
        self._buffer.flush()

    def _dump(self, piece: tuple[Any, ...]) -> None:
        try:
            self._pickler.dump(tuple(piece))
        except OSError:
            raise
        except Exception as error:
            msg = (
                f"run() returned a {class_name(type(piece[1]))} that cannot be kept with its type: "
                f"{type(error).__name__}: {error}. Return plain values, or write text: output_dir "
                "without keep_rows."
            )
            raise ReturnTypeError(msg) from error
        self._pickler.clear_memo()


def row_numbers(index: pd.Index) -> RowNumbers:
    """Return an index as row numbers, if it has no name and holds such; else `UNKNOWN`."""
    if index.nlevels > 1 or index.name is not None:
        return UNKNOWN
    if isinstance(index, pd.RangeIndex):
        return range(index.start, index.stop, index.step)
    if pd.api.types.infer_dtype(index, skipna=False) != "integer":
        return UNKNOWN
    try:
        numbers = index.to_numpy(np.int64)
    except (OverflowError, TypeError, ValueError):  # too large, or null
        return UNKNOWN
    if np.array_equal(numbers, np.arange(len(numbers))):
        return range(len(numbers))
    smaller = numbers.astype(np.int32)
    return smaller if np.array_equal(smaller, numbers) else numbers


def decode(file: IO[bytes], length: int) -> Iterator[TypedPiece]:
    """Yield the pieces in the next `length` bytes.

    Raise `JournalError` when they cannot be read here, above all for a class of the entry script.
    """
    end = file.tell() + length
    while file.tell() < end:
        try:
            piece = TypedPiece(*pickle.load(file))
        except Exception as error:
            msg = (
                f"typed rows cannot be read here: {type(error).__name__}: {error}. If "
                "they hold objects of the entry script's own classes, make it importable (its "
                "folder on sys.path), or return plain values."
            )
            raise JournalError(msg) from error
        yield piece
