"""Dealing rows out: the rows of one piece of a table, by the part that their keys belong to.

A dealt file begins with the number of rows and of parts. Then comes the place at which each part
begins, and the end of the last. Then come the rows of each part, as a pickle: their numbers in the
piece, and the rows themselves. Behind each pickle is its checksum, by a key of the job that no file
has.
"""

from __future__ import annotations

import os
import pickle
import struct
from contextlib import closing
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from daskprs._inputs.keys.hashing import keys_of, part_of
from daskprs._inputs.keys.rows import Rows, SealedPickleFile, cut, joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from daskprs._core.mini_batch import MiniBatch
    from daskprs._inputs.source.source import TableReader
    from daskprs._system.seal import SealKey

_HEAD = struct.Struct("<qq")
_PLACE = struct.Struct("<q")
_RANGE = struct.Struct("<qq")


class DealtPart(NamedTuple):
    """The place of the rows of one part in a dealt file."""

    path: str
    offset: int
    length: int
    """0: the piece has no row of the part."""
    rows_of_piece: int


def deal(
    reader: TableReader,
    mini_batches: Iterable[MiniBatch],
    keys: Sequence[str],
    parts: int,
    path: Path,
    seal_key: SealKey,
) -> int:
    """Load the mini-batches of a piece, deal their rows out, and return the number of rows."""
    loaded = [reader.load(one) for one in mini_batches]
    some = [rows for rows in loaded if len(rows)]
    del loaded
    rows = joined(some) if some else None
    del some
    return deal_frame(rows, keys, parts, path, seal_key)


def deal_by(
    reader: bytes,
    mini_batches: Iterable[MiniBatch],
    keys: Sequence[str],
    parts: int,
    path: Path,
    seal_key: SealKey,
    keep: bool,  # noqa: FBT001 - passed on by position
) -> int:
    """Do as `deal`, with a pickled reader, which this process may keep for its next piece.

    A reader that is kept has its file open: a compressed one is not read from its begin again.
    """
    if keep:
        return deal(_reader(reader), mini_batches, keys, parts, path, seal_key)
    with closing(pickle.loads(reader)) as own:
        return deal(own, mini_batches, keys, parts, path, seal_key)


@lru_cache(1)
def _reader(pickled: bytes) -> TableReader:
    reader: TableReader = pickle.loads(pickled)
    return reader


def deal_frame(
    rows: Rows | None, keys: Sequence[str], parts: int, path: Path, seal_key: SealKey
) -> int:
    """Write the rows of a piece by part, and return their number."""
    count = 0 if rows is None else len(rows)
    places = np.zeros(parts + 1, np.int64)
    body_begin = _HEAD.size + places.nbytes
    with path.open("wb") as file:
        file.seek(body_begin)
        pickles = SealedPickleFile(file, seal_key)
        if rows is None:
            places[:] = body_begin
        else:
            parts_of_rows = part_of(keys_of(rows, keys), parts)
            order = np.argsort(parts_of_rows, kind="stable")
            bounds = np.searchsorted(parts_of_rows[order], np.arange(parts + 1))
            numbers = order.astype(np.int32 if count < 1 << 31 else np.int64)
            filled = np.flatnonzero(np.diff(bounds))
            edges = np.append(bounds[filled], bounds[-1])
            for part, group in zip(filled.tolist(), cut(rows, order, edges), strict=True):
                places[part] = file.tell()
                pickles.add((numbers[bounds[part] : bounds[part + 1]], group))
            places[-1] = file.tell()
            _fill(places, filled)
        file.seek(0)
        file.write(_HEAD.pack(count, parts) + places.tobytes())
    return count


def _fill(places: Any, filled: Any) -> None:
    """Let each empty part begin where the next one does."""
    following = np.searchsorted(filled, np.arange(len(places) - 1))
    places[:-1] = places[np.append(filled, len(places) - 1)[following]]


def dealt_part(path: str, part: int) -> DealtPart:
    """Return the place of the rows of one part in a dealt file."""
    with open(path, "rb") as file:  # noqa: PTH123 - each of many
        rows, _ = _HEAD.unpack(os.pread(file.fileno(), _HEAD.size, 0))
        at = _HEAD.size + part * _PLACE.size
        begin, end = _RANGE.unpack(os.pread(file.fileno(), _RANGE.size, at))
    return DealtPart(path, begin, end - begin, rows)
