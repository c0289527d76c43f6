"""Rows of a table brought together by key, in files, with memory for a part of them only.

First each row goes to the file of its part, by a hash of its keys. Then each part is loaded into
memory, and the rows of each key are written side by side. Parts are small enough that some of them
fit into memory; the rows of one key have to fit, since `run` gets them at once.
"""

from __future__ import annotations

import itertools
import math
import pickle
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from daskprs.errors import LoadError, Option, class_name
from daskprs.folders.row_labels import prepared_labels, reorder_labels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from daskprs.inputs.source.source import TableSource

PART_BYTES = 16 << 20
SCATTER_BYTES = 16 << 20
THREADS = 3
"""Number of parts in memory at a time."""
MOST_PARTS = 512
"""Most files open at a time."""
NULLABLE = {
    pa.bool_(): pd.BooleanDtype(),
    pa.int8(): pd.Int8Dtype(),
    pa.int16(): pd.Int16Dtype(),
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
    pa.uint8(): pd.UInt8Dtype(),
    pa.uint16(): pd.UInt16Dtype(),
    pa.uint32(): pd.UInt32Dtype(),
    pa.uint64(): pd.UInt64Dtype(),
}
"""Types for keys that lie in Arrow: those of which pandas has no null otherwise."""


class Group(NamedTuple):
    """The rows of one combination of values."""

    first_row: int
    """Their first row's number in the whole input."""
    key: tuple[Any, ...]
    """The values."""
    rows: int
    part: int
    """The number of the part that the rows lie in."""
    offset: int
    length: int
    checksum: int
    place: int
    """The place of its first row among the rows of its part, in the order of the groups."""


def shuffle(
    source: TableSource,
    keys: Sequence[str],
    scratch: Path,
    report: Callable[[str], None],
) -> list[Group]:
    """Bring the rows of each key of a prepared table together in files of a folder.

    Null is a key of its own, NaN equals NaN, and −0.0 equals 0.0. The progress is reported in a few
    words, and the groups are returned in order of first appearance.
    """
    groups: list[Group] = []
    parts = _parts(source)
    _scatter(source, keys, scratch, parts, report)
    gather = partial(_gather, keys, scratch)
    # Sorting, copying and writing take the time, and do not hold the interpreter's lock.
    with ThreadPoolExecutor(THREADS, "daskprs-shuffle") as threads:
        for number, of_part in enumerate(threads.map(gather, range(parts)), 1):
            groups.extend(of_part)
            report(f"rows of each key are put together, {number} of {parts} parts")
    groups.sort()
    if prepared_labels(scratch).exists():
        _reorder_labels(groups, scratch)
    return groups


def _reorder_labels(groups: list[Group], scratch: Path) -> None:
    """Put the row labels of the input into the order of the groups."""
    parts = {path: np.load(path, mmap_mode="r") for path in scratch.glob("rows.*.npy")}
    rows = (
        parts[_numbered(scratch, group.part)][group.place : group.place + group.rows]
        for group in groups
    )
    counts = np.array([0, *(group.rows for group in groups)], np.int64)
    reorder_labels(scratch, rows, np.cumsum(counts))
    for path in parts:
        path.unlink()


def _parts(source: TableSource) -> int:
    size = sum(mini_batch.size_bytes or 0 for mini_batch in source.mini_batches())
    return max(1, min(MOST_PARTS, -(-size // PART_BYTES)))


def _scatter(
    source: TableSource,
    keys: Sequence[str],
    scratch: Path,
    parts: int,
    report: Callable[[str], None],
) -> None:
    """Append each row to the file of its part, with its number."""
    first = 0
    with ExitStack() as stack:
        files = [stack.enter_context(_scattered(scratch, part).open("wb")) for part in range(parts)]
        for frame in _frames(source):
            rows = np.arange(first, first + len(frame))
            first += len(frame)
            _scatter_frame(frame, rows, _part_of(_keys_of(frame, keys), parts), files)
            report(f"{first:,} rows are dealt out by key")


def _frames(source: TableSource) -> Iterator[Any]:
    """Yield the rows of a table, some mini-batches at a time: small frames cost too much."""
    some: list[Any] = []
    size = 0
    with closing(source.reader()) as reader:
        for mini_batch in source.mini_batches():
            frame = reader.load(mini_batch)
            if not len(frame):
                continue
            some.append(frame)
            size += mini_batch.size_bytes or SCATTER_BYTES
            if size >= SCATTER_BYTES:
                yield joined(some)
                some, size = [], 0
    if some:
        yield joined(some)


def joined(frames: list[Any]) -> Any:
    """Return frames, or Arrow tables, as one."""
    if len(frames) == 1:
        return frames[0]
    if isinstance(frames[0], pa.Table):
        return pa.concat_tables(frames)
    return pd.concat(frames, ignore_index=True)


def _taken(rows: pd.DataFrame | pa.Table, places: npt.NDArray[np.int64]) -> Any:
    """Return the rows at some places, in this order."""
    if isinstance(rows, pd.DataFrame):
        return rows.take(places)
    columns = [_taken_of(column, places) for column in rows.columns]
    return pa.table(columns, schema=rows.schema)


def _taken_of(column: pa.ChunkedArray, places: npt.NDArray[np.int64]) -> Any:
    try:
        return column.take(places)
    except pa.ArrowNotImplementedError:  # of views, say, which Arrow can only put together
        whole = column.combine_chunks()
        return pa.concat_arrays([whole.slice(place, 1) for place in places.tolist()])


def _keys_of(rows: pd.DataFrame | pa.Table, keys: Sequence[str]) -> pd.DataFrame:
    """Return the keys of rows; in a table a null does not change the type of the others."""
    if isinstance(rows, pd.DataFrame):
        return rows[list(keys)]
    frame: pd.DataFrame = rows.select(keys).to_pandas(
        types_mapper=NULLABLE.get, ignore_metadata=True
    )
    return frame


def _scatter_frame(
    frame: pd.DataFrame | pa.Table,
    rows: npt.NDArray[np.int64],
    part_of: npt.NDArray[np.int16],
    files: Sequence[IO[bytes]],
) -> None:
    order = np.argsort(part_of, kind="stable")
    bounds = np.searchsorted(part_of[order], np.arange(len(files) + 1))
    for file, start, stop in zip(files, bounds[:-1], bounds[1:], strict=True):
        if start < stop:
            places = order[start:stop]
            file.write(_pickled((rows[places], _taken(frame, places))))


def _pickled(rows: Any) -> bytes:
    try:
        return pickle.dumps(rows, protocol=5)
    except RecursionError as error:
        msg = (
            f"{Option('partition_keys')}: a value is nested too deeply to be brought together with "
            f"others by key. Leave its column out by {Option('columns')}."
        )
        raise LoadError(msg) from error


def _part_of(frame: pd.DataFrame, parts: int) -> npt.NDArray[np.int16]:
    """Return the part of each row: equal keys have the same, whatever their bits."""
    mixed = np.zeros(len(frame), np.uint64)
    for key in frame.columns:
        mixed = mixed * np.uint64(1_000_003) + _hashed(frame[key])
    mixed ^= mixed >> np.uint64(32)
    return (mixed % np.uint64(parts)).astype(np.int16)  # few values are sorted by counting


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
        msg = f": column {column.name!r}, {column.dtype}, cannot be a key: {error}."
        raise LoadError(Option("partition_keys"), msg) from error


def _comparable(column: pd.Series) -> pd.Series:
    """Return a column of which equal keys have equal bits, whatever its kind of floats."""
    if column.dtype.kind != "f":
        return column
    column = column.astype("float64") + 0.0  # -0.0 + 0.0 is 0.0
    return column.where(column.notna(), np.nan)


def _hash(value: Any) -> int:
    """Return equal hashes for equal values; each NaN in a tuple is an object with its own hash."""
    if isinstance(value, tuple):
        return hash(tuple(map(_hash, value)))
    if isinstance(value, float) and math.isnan(value):
        return 0
    try:
        return hash(value)
    except TypeError as error:
        msg = f": a {class_name(type(value))} cannot be a key, since it can change."
        raise LoadError(Option("partition_keys"), msg) from error


def _gather(keys: Sequence[str], scratch: Path, part: int) -> list[Group]:
    """Write the rows of each key of a part one after the other."""
    path = _scattered(scratch, part)
    pieces = list(_pieces(path))
    path.unlink()
    if not pieces:
        return []
    rows = np.concatenate([numbers for numbers, _ in pieces])
    frame = joined([piece for _, piece in pieces])
    if isinstance(frame, pd.DataFrame):
        frame = frame.reset_index(drop=True)
    del pieces
    keys_only = _keys_of(frame, keys)
    numbered = _group_numbers(keys_only)
    order = np.argsort(numbered, kind="stable")
    bounds = np.flatnonzero(np.diff(numbered[order], prepend=-1, append=-1))
    firsts = keys_only.take(order[bounds[:-1]])
    values = zip(*(map(_value, firsts[key]) for key in keys), strict=True)
    groups, done = [], 0
    with (scratch / gathered(part)).open("wb") as file:
        for first, key, group in zip(
            rows[order[bounds[:-1]]].tolist(), values, _cut(frame, order, bounds), strict=True
        ):
            offset = file.tell()
            body = _pickled(group)
            file.write(body)
            place = part, offset, len(body), zlib.crc32(body), done
            groups.append(Group(first, key, len(group), *place))
            done += len(group)
    if prepared_labels(scratch).exists():
        np.save(_numbered(scratch, part), rows[order])
    return groups


def _cut(
    frame: pd.DataFrame | pa.Table, order: npt.NDArray[np.int64], bounds: npt.NDArray[np.int64]
) -> Iterator[pd.DataFrame | pa.Table]:
    """Yield the rows of each group.

    All are put into order at once where columns are NumPy's. A slice of another array may keep,
    and pickle, all of it.
    """
    if isinstance(frame, pa.Table):
        for start, stop in itertools.pairwise(bounds):
            yield _taken(frame, order[start:stop])
        return
    at_once = all(isinstance(dtype, np.dtype) for dtype in frame.dtypes)
    ordered = frame.take(order) if at_once else frame
    for start, stop in itertools.pairwise(bounds):
        group = ordered.iloc[start:stop] if at_once else frame.take(order[start:stop])
        yield group.reset_index(drop=True)


def _group_numbers(frame: pd.DataFrame) -> npt.NDArray[Any]:
    columns = [_comparable(frame[key]) for key in frame.columns]
    groups = frame.groupby(columns, sort=False, dropna=False, observed=True)
    numbers = np.asarray(groups.ngroup(), np.int64)
    few = numbers.max(initial=0) <= np.iinfo(np.int16).max
    return numbers.astype(np.int16) if few else numbers  # few values are sorted by counting


def _pieces(path: Path) -> Iterator[tuple[npt.NDArray[np.int64], Any]]:
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


def gathered(part: int) -> str:
    """Return the name of the file that holds the rows of a part, by key."""
    return f"keyed.{part}"


def _numbered(scratch: Path, part: int) -> Path:
    """Return the file of the input rows of a part, in the order of its groups."""
    return scratch / f"rows.{part}.npy"
