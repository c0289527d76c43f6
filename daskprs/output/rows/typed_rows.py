"""Rows with their types: written in agents, read back by whoever reads a result.

The rows of one attempt are a run of pieces, so that those of different mini-batches can be put
together in any order. A piece is a pickled tuple. Its first value says what it is:

- ``"arrow"``: an Arrow stream follows the tuple. Its rows are those of a frame that Arrow gives
  back exactly, of an Arrow table, or elements of one type.
- ``"frame"``, ``"array"`` or ``"element"``: the tuple itself holds what Arrow would change, such
  as a frame with Python objects in it. Earlier versions kept all rows like that.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from daskprs.arrow.exact_frames import NO_ARROW, frame_of_labelled, labelled_table
from daskprs.errors import JournalError, ReturnTypeError, class_name
from daskprs.output.rows.blocks import apart, frames_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from daskprs.output.rows.blocks import Block
    from daskprs.output.spool import Sink

Kind = Literal["frame", "array", "element"]
WRITE_BYTES = 1 << 16
"""Bytes to which small pickles are joined; larger ones are written directly."""

MOST_GATHERED = 100
"""Most elements of a generator that are held until they are written."""
FEWEST_IN_ARROW = 32
"""Fewest elements that are written as Arrow: pickles of fewer are faster."""
MOST_LENGTH = 1_000
"""Length of the longest strings and bytes that are held so."""
CELLS_IN_A_BATCH = 1 << 17
"""Cells of a record batch: large tables are written in pieces."""
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
_TYPES = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.large_string()}
_TYPES[bytes] = pa.large_binary()

RowNumbers = range | np.ndarray[Any, Any] | str
"""Rows of the mini-batch as the index of a returned frame numbers them, or one of these words."""
UNKNOWN = "unknown"
"""The index does not hold row numbers, or was not kept (by jobs of earlier versions)."""
NO_INDEX = "no index"
"""The rows are those of an array or an Arrow table, which have no index."""


@dataclass(frozen=True)
class KeptTable:
    """Rows that were kept as Arrow: those of a frame, or of a table that `run` returned."""

    table: pa.Table
    of_frame: bool

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.table.num_rows)

    def frames(self) -> Iterator[pd.DataFrame]:
        """Yield the rows as frames."""
        if self.of_frame:
            yield frame_of_labelled(self.table)
            return
        try:
            for frame in frames_of(self.table):
                yield frame.reset_index(drop=True)
        except pa.ArrowException as error:
            msg = (
                f"pandas cannot hold an Arrow table that run() returned: {error}. Read the rows by "
                "to_arrow() or to_polars()."
            )
            raise ReturnTypeError(msg) from error

    def is_alike(self, other: KeptTable) -> bool:
        """Say whether the frames of both can be made at once."""
        return (
            self.of_frame
            and other.of_frame
            and self.table.schema.equals(other.table.schema, check_metadata=True)
            and all(map(_same_values, self.table.columns, other.table.columns))
        )


def _same_values(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    """Say whether two columns of one type have the same categories, if any."""
    if not pa.types.is_dictionary(one.type):
        return True
    dictionaries = [chunk.dictionary for column in (one, other) for chunk in column.chunks]
    return all(dictionaries[0].equals(each) for each in dictionaries[1:])


class TypedPiece(NamedTuple):
    """One kept piece: a frame, an array with a row for each number, or an element."""

    kind: Kind
    value: Any
    """A frame or a `KeptTable`; a list or an array; an element."""
    numbers: RowNumbers = UNKNOWN


class TypedRows:
    """Writes frames, tables, arrays and elements one after the other."""

    def __init__(self, sink: Sink) -> None:
        self._buffer = io.BufferedWriter(sink, WRITE_BYTES)
        self._pickler = pickle.Pickler(self._buffer, protocol=5)
        self._stream = ""
        """The type of the values whose Arrow stream is open; empty: no stream is."""
        self._gathered: list[Any] = []
        """Elements of one class that came one by one."""

    def block(self, block: Block, *, has_index: bool) -> None:
        """Keep rows, and their numbers if an index holds them."""
        if isinstance(block, pa.Table):
            self.table(*(apart(block) if has_index else (block, None)))
            return
        for frame in frames_of(block):
            numbers = row_numbers(frame.index) if has_index else NO_INDEX
            table = labelled_table(frame)
            if table is not None:
                self._table("frame", table, numbers)
                continue
            known = () if isinstance(numbers, str) and numbers == UNKNOWN else (numbers,)
            self._dump(("frame", frame.reset_index(drop=True), *known))

    def table(self, table: pa.Table, index: pd.Index | None) -> None:
        """Keep a table that `run` returned, and the numbers of its rows if an index holds them."""
        self._table("table", table, NO_INDEX if index is None else row_numbers(index))

    def array(self, array: np.ndarray[Any, Any]) -> None:
        """Keep a one-dimensional array."""
        values = _arrow_of(array)
        if values is None:
            self._dump(("array", array))
        else:
            self._values(array.dtype.str, values)

    def element(self, element: Any) -> None:
        """Keep an element of a generator."""
        kind = type(element)
        gathered = self._gathered
        if gathered and (kind is not type(gathered[0]) or len(gathered) == MOST_GATHERED):
            self._end_gathering()
        if kind in (int, float, bool) or (kind in (str, bytes) and len(element) <= MOST_LENGTH):
            self._gathered.append(element)
        else:
            self._dump(("element", element))

    def elements(self, elements: list[Any], kinds: set[type]) -> None:
        """Keep elements of a list."""
        (kind, *others) = kinds
        is_many = len(elements) >= FEWEST_IN_ARROW or bool(self._stream)
        if others or not is_many or not self._elements(elements, kind):
            for element in elements:
                self._dump(("element", element))

    def _elements(self, elements: list[Any], kind: type) -> bool:
        """Keep elements of one class as Arrow; say whether that is exact."""
        if issubclass(kind, np.generic):
            array = np.array(elements)
            if array.dtype.type is kind:
                self.array(array)
            return array.dtype.type is kind
        try:
            values = pa.array(elements, _TYPES[kind], from_pandas=False)
        except (KeyError, *NO_ARROW):  # an integer of more than 64 bits, half a surrogate
            return False
        self._values(kind.__name__, values)
        return True

    def flush(self) -> None:
        """Write the buffered rest."""
        self._end_gathering()
        self._end_stream()
        self._buffer.flush()

    def _table(self, kind: str, table: pa.Table, numbers: RowNumbers) -> None:
        self._dump(("arrow", kind, numbers))
        rows = max(1, CELLS_IN_A_BATCH // max(1, table.num_columns))
        if has_dictionary(table.schema):
            with pa.ipc.new_stream(self._buffer, table.schema) as stream:
                stream.write_table(table, max_chunksize=rows)
            return
        self._buffer.write(table.schema.serialize())
        for batch in table.to_batches(max_chunksize=rows):
            self._buffer.write(batch.serialize())
        self._buffer.write(END_OF_STREAM)

    def _values(self, kind: str, values: pa.Array) -> None:
        """Keep values of one type in a stream, which goes on with the next ones of this type."""
        batch = pa.record_batch([values], names=["result"])
        if self._stream != kind:
            self._dump(("arrow", kind, NO_INDEX))
            self._buffer.write(batch.schema.serialize())
            self._stream = kind
        self._buffer.write(batch.serialize())

    def _end_stream(self) -> None:
        if self._stream:
            self._buffer.write(END_OF_STREAM)
            self._stream = ""

    def _end_gathering(self) -> None:
        if self._gathered:
            gathered, self._gathered = self._gathered, []
            self.elements(gathered, {type(gathered[0])})

    def _dump(self, piece: tuple[Any, ...]) -> None:
        self._end_gathering()
        self._end_stream()
        try:
            self._pickler.dump(piece)
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


def _arrow_of(array: np.ndarray[Any, Any]) -> pa.Array | None:
    """Return an array as Arrow; None if Arrow would not give back the same."""
    if array.dtype.kind not in "iufbmM":
        return None
    try:
        values = pa.array(array, from_pandas=False)
        empty = values.slice(0, 0).to_numpy(zero_copy_only=False)
    except NO_ARROW:
        return None
    return values if empty.dtype == array.dtype else None


def has_dictionary(schema: pa.Schema) -> bool:
    """Say whether a schema has values that are written apart from their rows."""
    return any(map(_has_dictionary, schema.types))


def _has_dictionary(type_: pa.DataType) -> bool:
    inner = (type_.field(place).type for place in range(type_.num_fields))
    if isinstance(type_, pa.BaseExtensionType):
        return _has_dictionary(type_.storage_type)
    return bool(pa.types.is_dictionary(type_)) or any(map(_has_dictionary, inner))


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
            piece = _read(file)
        except Exception as error:
            msg = (
                f"typed rows cannot be read here: {type(error).__name__}: {error}. If "
                "they hold objects of the entry script's own classes, make it importable (its "
                "folder on sys.path), or return plain values."
            )
            raise JournalError(msg) from error
        yield piece


def _read(file: IO[bytes]) -> TypedPiece:
    piece = pickle.load(file)
    if piece[0] != "arrow":
        return TypedPiece(*piece)
    _, kind, numbers = piece
    with pa.ipc.open_stream(file) as stream:
        table = stream.read_all()
    if kind in ("frame", "table"):
        return TypedPiece("frame", KeptTable(table, kind == "frame"), numbers)
    return TypedPiece("array", _elements_of(table.column(0), kind), numbers)


def _elements_of(column: pa.ChunkedArray, kind: str) -> list[Any] | np.ndarray[Any, Any]:
    if kind in ("str", "bytes"):
        elements: list[Any] = column.to_pylist()
        return elements
    array: np.ndarray[Any, Any] = column.to_numpy()
    return array.tolist() if kind in ("int", "float", "bool") else array


def joined_frames(frames: Iterable[pd.DataFrame | KeptTable]) -> Iterator[pd.DataFrame]:
    """Yield frames; tables that follow one another become one frame where they are alike."""
    alike: list[KeptTable] = []
    for one in frames:
        if alike and not (isinstance(one, KeptTable) and alike[-1].is_alike(one)):
            yield from _frames_of_alike(alike)
            alike = []
        if isinstance(one, KeptTable):
            alike.append(one)
        else:
            yield one
    if alike:
        yield from _frames_of_alike(alike)


def _frames_of_alike(tables: list[KeptTable]) -> Iterator[pd.DataFrame]:
    joined = pa.concat_tables([one.table for one in tables])
    return KeptTable(joined, tables[0].of_frame).frames()
