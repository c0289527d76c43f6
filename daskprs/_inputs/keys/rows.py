"""Rows of a table, as a pandas frame or an Arrow table: joined, taken, cut and pickled."""

from __future__ import annotations

import hmac
import itertools
import pickle
import zlib
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from daskprs._inputs.source.pickled_rows import CategoryWriter
from daskprs._system.regular_files import keep_to_owner
from daskprs._system.seal import TAG_BYTES, checksum
from daskprs.errors import JobFolderError, LoadError, Option

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from daskprs._system.seal import SealKey

Rows: TypeAlias = "pd.DataFrame | pa.Table"


def joined(rows: Sequence[Any]) -> Any:
    """Return frames, or Arrow tables, as one."""
    if len(rows) == 1:
        return rows[0]
    if isinstance(rows[0], pa.Table):
        return pa.concat_tables(rows)
    return pd.concat(rows, ignore_index=True)


def taken(rows: Rows, places: npt.NDArray[np.int64]) -> Any:
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


def cut(rows: Rows, order: npt.NDArray[np.int64], bounds: npt.NDArray[np.int64]) -> Iterator[Rows]:
    """Yield the rows at `order`, those between two bounds at a time, with a new index.

    All are put into order at once where columns are NumPy's. A slice of another array may keep,
    and pickle, all of it.
    """
    if isinstance(rows, pa.Table):
        for start, stop in itertools.pairwise(bounds):
            yield taken(rows, order[start:stop])
        return
    at_once = all(isinstance(dtype, np.dtype) for dtype in rows.dtypes)
    ordered = rows.take(order) if at_once else rows
    for start, stop in itertools.pairwise(bounds):
        some = ordered.iloc[start:stop] if at_once else rows.take(order[start:stop])
        yield some.reset_index(drop=True)


class PickleFile:
    """Writes pickles to a file without a copy in memory, each with its place and checksum."""

    def __init__(self, file: IO[bytes]) -> None:
        keep_to_owner(file)
        self._file = file
        self._checksum = 0
        self._categories = CategoryWriter(file)

    def write(self, data: Any) -> int:
        """Write a piece of a pickle (called by `pickle`)."""
        self._checksum = zlib.crc32(data, self._checksum)
        return self._file.write(data)

    def add(self, value: Any) -> tuple[int, int, int]:
        """Write a pickle, and return its offset, its length in bytes and its checksum."""
        value, behind = self._categories.coded(value)
        self._checksum = 0
        offset = self._file.tell()
        try:
            pickle.dump(value, self, protocol=5)
        except RecursionError as error:
            msg = (
                f"{Option('partition_keys')}: a value is nested too deeply to be brought together "
                f"with others by key. Leave its column out by {Option('columns')}."
            )
            raise LoadError(msg) from error
        self._file.write(behind)  # the same rows have the same checksum, wherever the types are
        return offset, self._file.tell() - offset, self._checksum


class SealedPickleFile(PickleFile):
    """Writes pickles that are read by `unsealed_rows`: behind each is its keyed checksum."""

    def __init__(self, file: IO[bytes], key: SealKey) -> None:
        super().__init__(file)
        self._key = key

    def write(self, data: Any) -> int:
        """Write a piece of a pickle (called by `pickle`)."""
        self._tag.update(data)
        return self._file.write(data)

    def add(self, value: Any) -> tuple[int, int, int]:
        """Write a pickle and its checksum, and return their offset and length, and 0."""
        self._tag = checksum(self._key)
        offset, length, _ = super().add(value)
        return offset, length + self._file.write(self._tag.digest()), 0


def unsealed_rows(body: bytes, key: SealKey, path: str) -> Any:
    """Return rows of a `SealedPickleFile`, unless another program has changed them."""
    view = memoryview(body)
    right = checksum(key)
    right.update(view[:-TAG_BYTES])
    if not hmac.compare_digest(right.digest(), view[-TAG_BYTES:]):
        msg = (
            f"{path}: its rows are not those that this job has written there, so they are not "
            "loaded. Another program has changed the file, or the disk has lost a part of it. "
            "Start the job again in a folder that only you can write to."
        )
        raise JobFolderError(msg)
    return pickle.loads(view[:-TAG_BYTES])
