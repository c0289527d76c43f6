"""An index in pieces of a file: as Arrow and numbers where that is exact, else as sealed pickles.

A piece is the length of a msgpack array, the array, and what the array says:

- ``"range", start, stop, step, name``: nothing more.
- ``"levels", names, frequency``: an Arrow stream follows, with a column for each level.
- ``"categories", whether they are ordered, name``: two pieces follow, the categories and the codes.
- ``"none", reason``: the labels of these rows could not be kept.
- ``"pickle", length, checksum``: the pickle of labels that Arrow would change. The checksum is by a
  key of the user.
"""

from __future__ import annotations

import pickle
import struct
from typing import IO, TYPE_CHECKING, Any

import msgpack
import pandas as pd
import pyarrow as pa

from daskprs._arrow.exact_frames import frame_of_labelled, labelled_table
from daskprs._folders.rows_seal import labels_key
from daskprs._system.seal import checksum

if TYPE_CHECKING:
    from daskprs._system.seal import Seal

_LENGTH = struct.Struct("<I")
NAMES = (str, int, type(None))
"""Types of the names of levels that are kept without a pickle."""


def write_piece(file: IO[bytes], index: pd.Index) -> None:
    """Write an index; where it cannot be kept, the reason."""
    if type(index) is pd.RangeIndex and type(index.name) in NAMES:
        _head(file, "range", index.start, index.stop, index.step, index.name)
    elif type(index) is pd.CategoricalIndex and type(index.name) in NAMES:
        _head(file, "categories", bool(index.ordered), index.name)
        write_piece(file, index.categories)
        write_piece(file, pd.Index(index.codes))
    elif (table := _table_of(index)) is not None:
        _head(file, "levels", list(index.names), _frequency(index))
        with pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)
    else:
        _pickle(file, index)


def _pickle(file: IO[bytes], index: pd.Index) -> None:
    try:
        body = pickle.dumps(index, protocol=5)
    except Exception as error:  # noqa: BLE001 - an object of the caller may raise anything
        _head(file, "none", f"{type(error).__name__}: {error}")
        return
    tag = checksum(labels_key())
    tag.update(body)
    _head(file, "pickle", len(body), tag.digest())
    file.write(body)


def _head(file: IO[bytes], *values: Any) -> None:
    head = msgpack.packb(values, unicode_errors="surrogatepass")
    file.write(_LENGTH.pack(len(head)) + head)


def _table_of(index: pd.Index) -> pa.Table | None:
    """Return the levels of an index as columns; None if that would change the index."""
    try:
        if not {*map(type, index.names)} <= {*NAMES}:
            return None
        levels = range(index.nlevels)
        frame = pd.DataFrame({level: index.get_level_values(level).array for level in levels})
        frame.columns = pd.RangeIndex(index.nlevels)
        table = labelled_table(frame)
        if table is None:
            return None
        back = _index_of(table, list(index.names), _frequency(index))
    except Exception:  # noqa: BLE001 - an object of the caller may raise anything
        return None
    is_same = type(back) is type(index) and back.identical(index) and _types(back) == _types(index)
    return table if is_same else None


def _index_of(table: pa.Table, names: list[Any], frequency: str | None) -> pd.Index:
    frame = frame_of_labelled(table)
    if len(names) > 1:
        return pd.MultiIndex.from_frame(frame, names=names)
    index: Any = pd.Index(frame[0].array, dtype=frame[0].dtype, name=names[0])
    if frequency is not None:
        index.freq = frequency
    indexed: pd.Index = index
    return indexed


def _frequency(index: pd.Index) -> str | None:
    if isinstance(index, (pd.DatetimeIndex, pd.TimedeltaIndex)):
        frequency: str | None = index.freqstr
        return frequency
    return None


def _types(index: pd.Index) -> list[str]:
    """Return the types of the levels, with the categories of those that have some."""
    levels = index.levels if isinstance(index, pd.MultiIndex) else [index]
    return [f"{level.dtype!r}" for level in levels]


def read_piece(file: IO[bytes], seal: Seal, what: str) -> pd.Index | str:
    """Read a piece of an index, or why it was not kept."""
    (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
    head = msgpack.unpackb(file.read(length), unicode_errors="surrogatepass")
    match head:
        case ["range", int(start), int(stop), int(step), name]:
            return pd.RangeIndex(start, stop, step, name=name)
        case ["categories", bool(is_ordered), name]:
            categories, codes = read_piece(file, seal, what), read_piece(file, seal, what)
            if isinstance(categories, str) or isinstance(codes, str):
                return f"{categories}"
            values = pd.Categorical.from_codes(codes, categories, ordered=is_ordered)
            return pd.CategoricalIndex(values, name=name)
        case ["levels", list(names), frequency]:
            with pa.ipc.open_stream(file) as stream:
                return _index_of(stream.read_all(), names, frequency)
        case ["none", str(why)]:
            return why
        case ["pickle", int(size), bytes(tag)]:
            body = file.read(size)
            seal.check(body, tag, what)
            index: pd.Index = pickle.loads(body)
            return index
    msg = "one of its pieces was not written by daskprs"
    raise ValueError(msg)
