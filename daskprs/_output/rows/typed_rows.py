"""Rows with their types: written in agents, read back by whoever reads a result.

The rows of one attempt are a run of pieces, so that those of different mini-batches can be put
together in any order. The first byte of a piece says what it is:

- ``A``: the length of a msgpack array (what the rows are, and their numbers), the array, and an
  Arrow stream. The rows are those of a frame that Arrow gives back exactly, of an Arrow table, or
  elements of one type.
- ``V``: the length of a msgpack array, and the array: a few numbers, texts or nulls.
- ``P``: pickles of what Arrow would change, such as a frame with Python objects in it. They come
  in blocks, each after its length; after a block without bytes comes a keyed checksum.
"""

from __future__ import annotations

import io
import pickle
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple

import msgpack
import numpy as np
import pandas as pd
import pyarrow as pa

from daskprs._arrow.exact_frames import NO_ARROW, frame_of_labelled, labelled_table
from daskprs._output.rows.blocks import frames_of
from daskprs._output.rows.own_classes import RowPickler, row_pickle
from daskprs._system.seal import TAG_BYTES, checksum
from daskprs.errors import JournalError, ReturnTypeError, class_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from _typeshed import ReadableBuffer

    from daskprs._output.spool import Sink
    from daskprs._system.seal import Seal, SealKey

Kind = Literal["frame", "array"]
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
_ARROW, _VALUES, _PICKLES = b"AVP"
_LENGTH = struct.Struct("<I")
MOST_BLOCK_BYTES = 1 << 30
MOST_PICKLES_BYTES = 1 << 20
"""Bytes of pickles from which a piece is full: a reader holds all of a piece."""
MOST_NAME_CHARS = 60
"""Characters of the name of an index that a message shows."""
_PLAIN = {int, float, bool, str, bytes, type(None)}
"""Classes of elements that msgpack gives back as they were."""
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
_TYPES = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.large_string()}
_TYPES[bytes] = pa.large_binary()

RowNumbers = range | np.ndarray[Any, Any] | str
"""Rows of the mini-batch as the index of a returned frame numbers them, or one of these words."""
UNKNOWN = "unknown"
"""The index does not hold row numbers, or was not kept."""
NO_INDEX = "no index"
"""The rows are those of an array or an Arrow table, which have no index."""
NAMED = "named "
"""The beginning of the word for an index with names, which follow: its values are not kept."""


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
        for frame in frames_of(self.table):
            yield frame.reset_index(drop=True)

    @property
    def untyped(self) -> list[int]:
        """The columns that have no type but null."""
        types = enumerate(self.table.schema.types)
        return [] if self.of_frame else [at for at, one in types if pa.types.is_null(one)]

    def like(self, empty: pd.DataFrame) -> pd.DataFrame:
        """Return the rows as a frame; columns without a type have those of one without rows."""
        frame = pd.concat([*self.frames()], ignore_index=True)
        nulls = empty.reset_index(drop=True).reindex(range(len(frame)))
        if [*map(str, empty.columns)] == [*map(str, frame.columns)]:
            frame.columns = empty.columns
        places = {name: at for at, name in enumerate(empty.columns)}
        for at in self.untyped:
            place = places.get(frame.columns[at])
            if place is None or pd.api.types.is_object_dtype(empty.dtypes.iloc[place]):
                continue  # they are objects already: None, as for other nulls of Arrow
            # A type of NumPy that holds no nulls would become another one.
            if nulls.dtypes.iloc[place] == empty.dtypes.iloc[place]:
                frame.isetitem(at, nulls.iloc[:, place].array)
        return frame

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
    """One kept piece: a frame, or an array with a row for each element."""

    kind: Kind
    value: Any
    """A frame or a `KeptTable`; a list or an array."""
    numbers: RowNumbers = UNKNOWN


class TypedRows:
    """Writes frames, tables, arrays and elements one after the other; seals pickles with a key."""

    def __init__(self, sink: Sink, key: SealKey) -> None:
        self._buffer = io.BufferedWriter(sink, WRITE_BYTES)
        self._blocks = _SealedBlocks(self._buffer, key)
        self._pickler = RowPickler(self._blocks)
        self._stream = ""
        """The type of the values whose Arrow stream is open; empty: no stream is."""
        self._gathered: list[Any] = []
        """Elements of one class that came one by one."""
        self._first_row = 0

    def begin_at(self, first_row: int) -> None:
        """Let the numbers of the next rows count from a row of the mini-batch."""
        self._first_row = first_row

    def frame(self, frame: pd.DataFrame, *, has_index: bool) -> None:
        """Keep rows, and their numbers if an index holds them."""
        numbers = self._numbers(frame.index) if has_index else NO_INDEX
        table = labelled_table(frame)
        if table is not None:
            self._table("frame", table, numbers)
        else:
            self._dump(("frame", frame.reset_index(drop=True), numbers))

    def table(self, table: pa.Table, index: pd.Index | None) -> None:
        """Keep a table that `run` returned, and the numbers of its rows if an index holds them.

        An index with a name holds none; nothing of it is lost, since it is a column, too.
        """
        numbers = NO_INDEX if index is None else self._numbers(index)
        is_column = isinstance(numbers, str) and numbers.startswith(NAMED)
        self._table("table", table, UNKNOWN if is_column else numbers)

    def _numbers(self, index: pd.Index) -> RowNumbers:
        """Return an index as row numbers of the mini-batch."""
        numbers, first = row_numbers(index), self._first_row
        match numbers:
            case range() if first:
                return range(numbers.start + first, numbers.stop + first, numbers.step)
            case np.ndarray():
                return numbers.astype(np.int64) + first if first else numbers
        return numbers

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
            self._dump_elements([element])

    def elements(self, elements: list[Any], kinds: set[type]) -> None:
        """Keep elements of a list."""
        (kind, *others) = kinds
        is_many = len(elements) >= FEWEST_IN_ARROW or bool(self._stream)
        if others or not is_many or not self._elements(elements, kind):
            self._dump_elements(elements)

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
        self._blocks.end()
        self._buffer.flush()

    def _table(self, kind: str, table: pa.Table, numbers: RowNumbers) -> None:
        self._head(_ARROW, (kind, _written(numbers)))
        rows = max(1, CELLS_IN_A_BATCH // max(1, table.num_columns))
        # Only Arrow's own stream writer puts the dictionaries in front of the batches.
        if any(map(_has_dictionary, table.schema.types)):
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
            self._head(_ARROW, (kind, NO_INDEX))
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

    def _head(self, piece: int, values: Any) -> None:
        self._end_gathering()
        self._end_stream()
        self._blocks.end()
        body = msgpack.packb(values, unicode_errors="surrogatepass")
        self._buffer.write(bytes((piece,)) + _LENGTH.pack(len(body)) + body)

    def _dump_elements(self, elements: list[Any]) -> None:
        """Keep some elements of any classes."""
        if _PLAIN.issuperset(map(type, elements)):
            with suppress(OverflowError):  # an integer of more than 64 bits
                self._head(_VALUES, elements)
                return
        self._dump(("array", elements))

    def _dump(self, piece: tuple[Any, ...]) -> None:
        self._end_gathering()
        self._end_stream()
        self._blocks.begin()
        try:
            self._pickler.dump(piece)
        except (OSError, ReturnTypeError):
            raise
        except Exception as error:  # any class of the script has its own where it has no pickle
            culprit = _culprit(piece[1]) if type(piece[1]) is list else piece[1]
            msg = (
                f"run() returned a {class_name(type(culprit))} that cannot be kept with its type: "
                f"{type(error).__name__}: {error}. Return plain values, or write text alone: by "
                "output_dir, without output and keep_rows."
            )
            raise ReturnTypeError(msg) from error
        self._pickler.clear_memo()
        self._blocks.end_pickle()


class _SealedBlocks:
    """The file of a pickler: it writes pickles in blocks, and a keyed checksum of some of them."""

    def __init__(self, file: IO[bytes], key: SealKey) -> None:
        self._file = file
        self._key = key
        self._checksum: Any = None
        """The checksum of the open piece; None: no piece is open."""
        self._held = bytearray()
        self._written = 0

    def begin(self) -> None:
        """Begin a pickle, in the open piece or in a new one."""
        if self._checksum is None:
            self._checksum = checksum(self._key)
            self._written = 0
            self._file.write(bytes((_PICKLES,)))

    def write(self, block: ReadableBuffer) -> int:
        """Write a block of the pickle."""
        view = memoryview(block).cast("B")
        if len(view) >= WRITE_BYTES:
            self._put_held()
            for start in range(0, len(view), MOST_BLOCK_BYTES):
                self._put(view[start : start + MOST_BLOCK_BYTES])
            return len(view)
        self._held += view
        if len(self._held) >= WRITE_BYTES:
            self._put_held()
        return len(view)

    def end_pickle(self) -> None:
        """End a pickle; end the piece, too, when it is large."""
        if self._written >= MOST_PICKLES_BYTES:
            self.end()

    def end(self) -> None:
        """End the open piece."""
        if self._checksum is not None:
            self._put_held()
            self._file.write(_LENGTH.pack(0) + self._checksum.digest())
            self._checksum = None

    def _put_held(self) -> None:
        if self._held:
            held, self._held = self._held, bytearray()
            self._put(memoryview(held))

    def _put(self, block: memoryview) -> None:
        self._checksum.update(block)
        self._file.write(_LENGTH.pack(len(block)))
        self._file.write(block)
        self._written += len(block)


def _culprit(elements: list[Any]) -> Any:
    """Return the first element that has no pickle."""
    for element in elements:
        try:
            row_pickle(element)
        except Exception:  # noqa: BLE001 - a class may raise anything
            return element
    return elements


def _written(numbers: RowNumbers) -> Any:
    """Return row numbers as plain values."""
    if isinstance(numbers, str):
        return numbers
    if isinstance(numbers, range):
        return numbers.start, numbers.stop, numbers.step
    return numbers.dtype.str, numbers.tobytes()


def _read_numbers(written: Any) -> RowNumbers:
    """Return the row numbers that `_written` has made plain values of."""
    match written:
        case str():
            return written
        case (int(start), int(stop), int(step)):
            return range(start, stop, step)
        case (str(kind), bytes(values)):
            return np.frombuffer(values, kind)
    msg = "its row numbers are none"
    raise ValueError(msg)


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


def _has_dictionary(type_: pa.DataType) -> bool:
    """Say whether a type has values that are written apart from their rows."""
    inner = (type_.field(place).type for place in range(type_.num_fields))
    if isinstance(type_, pa.BaseExtensionType):
        return _has_dictionary(type_.storage_type)
    return bool(pa.types.is_dictionary(type_)) or any(map(_has_dictionary, inner))


def _shown(name: Any) -> str:
    """Return the name of an index for a message: its class may be the script's own."""
    known = type(name) in _PLAIN
    return repr(name)[:MOST_NAME_CHARS] if known else type(name).__name__


def row_numbers(index: pd.Index) -> RowNumbers:
    """Return an index as row numbers, if it has no name and holds such; else what it is."""
    if any(name is not None for name in index.names):
        return NAMED + ", ".join(map(_shown, index.names))
    if isinstance(index, pd.RangeIndex):
        return range(index.start, index.stop, index.step)
    if index.nlevels > 1 or pd.api.types.infer_dtype(index, skipna=False) != "integer":
        return UNKNOWN
    try:
        numbers = index.to_numpy(np.int64)
    except (OverflowError, TypeError, ValueError):  # too large, or null
        return UNKNOWN
    if np.array_equal(numbers, np.arange(len(numbers))):
        return range(len(numbers))
    smaller = numbers.astype(np.int32)
    return smaller if np.array_equal(smaller, numbers) else numbers


def decode(
    file: IO[bytes], length: int, seal: Seal, what: str = "what run() returned"
) -> Iterator[TypedPiece]:
    """Yield the pieces in the next `length` bytes.

    Raise `JournalError` when they cannot be read here, above all for a class of the entry script,
    and for pickles that the seal refuses. `what` names the rows in that error.
    """
    end = file.tell() + length
    while file.tell() < end:
        try:
            yield from _read(file, seal, what)
        except JournalError:
            raise
        except Exception as error:  # loading an object runs the code of its class
            msg = (
                f"typed rows cannot be read here: {type(error).__name__}: {error}. If "
                "they hold objects of the entry script's own classes, make it importable (its "
                "folder on sys.path), or return plain values."
            )
            raise JournalError(msg) from error


def _read(file: IO[bytes], seal: Seal, what: str) -> Iterator[TypedPiece]:
    piece = file.read(1)[0]
    if piece == _ARROW:
        kind, numbers = _read_head(file)
        yield _read_stream(file, kind, _read_numbers(numbers))
    elif piece == _VALUES:
        yield TypedPiece("array", _read_head(file))
    elif piece == _PICKLES:
        body, tag = _read_blocks(file)
        seal.check(body, tag, what)
        pickles = io.BytesIO(body)
        while pickles.tell() < len(body):
            yield TypedPiece(*pickle.load(pickles))
    else:
        msg = f"a piece begins with the byte {piece}"
        raise ValueError(msg)


def _read_head(file: IO[bytes]) -> list[Any]:
    (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
    head: list[Any] = msgpack.unpackb(file.read(length), unicode_errors="surrogatepass")
    return head


def _read_blocks(file: IO[bytes]) -> tuple[bytearray, bytes]:
    """Return pickles and their checksum."""
    body = bytearray()
    while (length := _LENGTH.unpack(file.read(_LENGTH.size))[0]) > 0:
        block = file.read(length)
        if len(block) < length:
            raise EOFError
        body += block
    return body, file.read(TAG_BYTES)


def _read_stream(file: IO[bytes], kind: str, numbers: RowNumbers) -> TypedPiece:
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
