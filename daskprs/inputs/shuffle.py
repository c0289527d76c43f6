"""Rows of a table brought together by key, in files, with memory for a part of them only.

First each row goes to the file of its part, by a hash of its keys; then part after part is put
into memory, and the rows of each key are written one after the other. A part is chosen so small
that some of them fit into memory; the rows of one key have to, since `run` gets them at once.
"""

from __future__ import annotations

import itertools
import math
import pickle
import zlib
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from daskprs.errors import LoadError, Option

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from daskprs.core.mini_batch import MiniBatch
    from daskprs.inputs.source import TableSource

PART_BYTES = 64 << 20
MOST_PARTS = 256
"""So many files are open at a time."""


class Group(NamedTuple):
    """The rows of one combination of values."""

    first_row: int
    """Their first row's number in the whole input."""
    key: tuple[Any, ...]
    """The values."""
    rows: int
    file: int
    offset: int
    length: int
    checksum: int


class KeyIndex:
    """All groups, in order of first appearance."""

    def __init__(self) -> None:
        self.groups: list[Group] = []


def shuffle(source: TableSource, keys: Sequence[str], scratch: Path) -> KeyIndex:
    """Bring the rows of each key together, and return where they are.

    Parameters
    ----------
    source
        A prepared table.
    keys
        Names of columns. Null is a key of its own, NaN equals NaN, and −0.0 equals 0.0.
    scratch
        The folder of the files.

    """
    index = KeyIndex()
    parts = _parts(source)
    _scatter(source, keys, scratch, parts)
    for part in range(parts):
        index.groups.extend(_gather(keys, scratch, part))
    index.groups.sort()
    return index


class ShuffledReader:
    """Loads the rows of one combination."""

    def __init__(self, scratch: str) -> None:
        self._scratch = Path(scratch)

    def load(self, mini_batch: MiniBatch) -> pd.DataFrame:
        """Return all rows of a combination, in input order."""
        part, offset, length = mini_batch.piece
        with _gathered(self._scratch, part).open("rb") as file:
            file.seek(offset)
            frame: pd.DataFrame = pickle.loads(file.read(length))
        return frame

    def close(self) -> None:
        """Do nothing: no file stays open."""


def _parts(source: TableSource) -> int:
    size = sum(mini_batch.size_bytes or 0 for mini_batch in source.mini_batches())
    return max(1, min(MOST_PARTS, -(-size // PART_BYTES)))


def _scatter(source: TableSource, keys: Sequence[str], scratch: Path, parts: int) -> None:
    """Append each row to the file of its part, with its number."""
    reader = source.reader()
    first = 0
    with ExitStack() as stack:
        stack.callback(reader.close)
        files = [stack.enter_context(_scattered(scratch, part).open("wb")) for part in range(parts)]
        for mini_batch in source.mini_batches():
            frame = reader.load(mini_batch)
            if not isinstance(frame, pd.DataFrame) or frame.empty:
                continue
            rows = np.arange(first, first + len(frame))
            first += len(frame)
            _scatter_frame(frame, rows, _part_of(frame, keys, parts), files)


def _scatter_frame(
    frame: pd.DataFrame,
    rows: npt.NDArray[np.int64],
    part_of: npt.NDArray[np.int64],
    files: Sequence[IO[bytes]],
) -> None:
    for part in np.unique(part_of):
        places = np.flatnonzero(part_of == part)
        pickle.dump((rows[places], frame.take(places)), files[part], protocol=5)


def _part_of(frame: pd.DataFrame, keys: Sequence[str], parts: int) -> npt.NDArray[np.int64]:
    """Return the part of each row: equal keys have the same, whatever their bits."""
    mixed = np.zeros(len(frame), np.uint64)
    for key in keys:
        mixed = mixed * np.uint64(1_000_003) + _hashed(frame[key])
    mixed ^= mixed >> np.uint64(32)
    return (mixed % np.uint64(parts)).astype(np.int64)


def _hashed(column: pd.Series) -> npt.NDArray[np.uint64]:
    if column.dtype == object:
        null = column.isna()
        hashes = [
            0 if is_null else _hash(value) for value, is_null in zip(column, null, strict=True)
        ]
        return np.array(hashes, np.int64).view(np.uint64)
    try:
        return np.asarray(pd.util.hash_pandas_object(_comparable(column), index=False), np.uint64)
    except TypeError as error:
        told = f": column {column.name!r}, {column.dtype}, cannot be a key: {error}."
        raise LoadError(Option("partition_keys"), told) from error


def _comparable(column: pd.Series) -> pd.Series:
    """Return a column of which equal keys have equal bits, whatever its kind of floats."""
    if column.dtype.kind != "f":
        return column
    column = column.astype("float64") + 0.0  # -0.0 + 0.0 is 0.0
    return column.where(column.notna(), np.nan)


def _hash(value: Any) -> int:
    """Return the same for equal values; each NaN in a tuple is another object, with its hash."""
    if isinstance(value, tuple):
        return hash(tuple(map(_hash, value)))
    if isinstance(value, float) and math.isnan(value):
        return 0
    try:
        return hash(value)
    except TypeError as error:
        told = f": a {type(value).__name__} cannot be a key, since it can change."
        raise LoadError(Option("partition_keys"), told) from error


def _gather(keys: Sequence[str], scratch: Path, part: int) -> Iterator[Group]:
    """Write the rows of each key of a part one after the other."""
    path = _scattered(scratch, part)
    pieces = list(_pieces(path))
    path.unlink()
    if not pieces:
        return
    rows = np.concatenate([numbers for numbers, _ in pieces])
    frame = pd.concat([piece for _, piece in pieces], ignore_index=True)
    del pieces
    numbered = _group_numbers(frame, keys)
    order = np.argsort(numbered, kind="stable")
    bounds = np.flatnonzero(np.diff(numbered[order], prepend=-1, append=-1))
    with _gathered(scratch, part).open("wb") as file:
        for start, stop in itertools.pairwise(bounds):
            places = order[start:stop]
            group = frame.take(places).reset_index(drop=True)
            offset = file.tell()
            body = pickle.dumps(group, protocol=5)
            file.write(body)
            values = tuple(_value(group[key].iloc[0]) for key in keys)
            yield Group(
                int(rows[places[0]]),
                values,
                len(group),
                part,
                offset,
                len(body),
                zlib.crc32(body),
            )


def _group_numbers(frame: pd.DataFrame, keys: Sequence[str]) -> npt.NDArray[np.int64]:
    columns = [_comparable(frame[key]) for key in keys]
    groups = frame.groupby(columns, sort=False, dropna=False, observed=True)
    return np.asarray(groups.ngroup(), np.int64)


def _pieces(path: Path) -> Iterator[tuple[npt.NDArray[np.int64], pd.DataFrame]]:
    with path.open("rb") as file:
        while True:
            try:
                yield pickle.load(file)
            except EOFError:
                return


def _value(cell: Any) -> Any:
    """Return a key's value as Python has it; None for null."""
    if pd.api.types.is_scalar(cell) and pd.isna(cell):
        return None
    return cell.item() if isinstance(cell, np.generic) else cell


def _scattered(scratch: Path, part: int) -> Path:
    return scratch / f"scattered.{part}"


def _gathered(scratch: Path, part: int) -> Path:
    return scratch / f"keyed.{part}"
