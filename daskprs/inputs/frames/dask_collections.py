"""Dask collections: partitions are computed one after the other, and written for the agents."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from dask.dataframe.utils import UNKNOWN_CATEGORIES

from daskprs.errors import InputError, LoadError, OptionError, class_name
from daskprs.folders.row_labels import LabelWriter
from daskprs.inputs.files.discover import discover
from daskprs.inputs.files.file_list import FileList
from daskprs.inputs.files.source import FilesSource
from daskprs.inputs.frames.caller_frame import (
    FrameReader,
    FrameSource,
    ObjectFrameSource,
    rows_of,
    source_of_frame,
)
from daskprs.inputs.keys.partition_keys import by_keys
from daskprs.inputs.source.batch_format import check_columns_fit
from daskprs.inputs.source.columns import check_columns
from daskprs.inputs.source.given_types import converted, given_type
from daskprs.inputs.source.read_options import check_options
from daskprs.inputs.source.sizes import files_per_mini_batch, parse_bytes
from daskprs.inputs.source.source import TableSource

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from daskprs.core.mini_batch import MiniBatch, Where
    from daskprs.errors import DaskprsError
    from daskprs.folders.row_labels import Numbers
    from daskprs.inputs.source.pickled_rows import PickledReader
    from daskprs.inputs.source.read_options import ReadOptions
    from daskprs.inputs.source.source import Source

WHOLE = 1 << 62
"""The size of a mini-batch that takes a whole partition."""


def open_collection(data: Any, reading: ReadOptions) -> Source:
    """Return the source of a dask DataFrame, or of a Bag of paths.

    Without a size, each partition is one mini-batch.
    """
    if type(data).__name__ == "DataFrame":
        check_options(reading, "frame")
        if reading.columns is not None:
            check_columns(reading.columns, list(data.columns), "columns")
            data = data[list(reading.columns)]
        check_columns_fit(reading.batch_format, list(data.columns))
        check_columns(reading.partition_keys, list(data.columns), "partition_keys")
        source = PartitionsSource(data, reading)
        return by_keys(source, reading.partition_keys) if reading.partition_keys else source
    if type(data).__name__ == "Bag":
        check_options(reading, "bag")
        return _open_bag(data, reading)
    msg = (
        "data: of dask's collections a DataFrame and a Bag of paths can be cut, not a "
        f"{class_name(type(data))}."
    )
    raise InputError(msg)


def _open_bag(bag: Any, reading: ReadOptions) -> FilesSource:
    delayed = enumerate(bag.to_delayed())
    partitions = [list(_computed(one, number, InputError)) for number, one in delayed]
    for path in (path for partition in partitions for path in partition):
        if not isinstance(path, (str, os.PathLike)):
            msg = f"data: a Bag of paths is wanted; it holds {path!r}."
            raise InputError(msg)
    inputs = [
        FileList(file for path in partition for one in discover([path]) for file in one)
        for partition in partitions
        if partition
    ]
    if reading.mini_batch_size is None and not reading.partition_keys:
        return FilesSource(inputs, max(map(len, inputs), default=1))
    files = FileList(file for partition in inputs for file in partition)
    count = files_per_mini_batch(None if reading.partition_keys else reading.mini_batch_size)
    return FilesSource([files], count, reading.partition_format, reading.partition_keys)


class PartitionsSource(TableSource):
    """The partitions of a dask DataFrame, each cut by itself.

    The collection is computed partition by partition, by the scheduler that Dask uses. Without a
    size, each partition is one mini-batch.
    """

    keeps_nan = True

    def __init__(self, frame: Any, reading: ReadOptions) -> None:
        size, dtypes = reading.mini_batch_size, reading.dtypes
        self._frame = frame
        self._keep_labels = reading.keep_labels
        self._meta = frame._meta.reset_index(drop=True)  # noqa: SLF001 - Dask's name for it
        self._size = WHOLE if size is None else parse_bytes(size, "mini_batch_size")
        if list(self._meta.columns) != list(dict.fromkeys(self._meta.columns)):
            msg = "data: the columns of a dask DataFrame must have different names."
            raise OptionError(msg)
        check_columns(list(dtypes), list(self._meta.columns), "dtypes")
        given = {name: given_type(name, dtype) for name, dtype in dtypes.items()}
        self._meta = self._meta.astype(given)
        self._parts: list[FrameSource | ObjectFrameSource] = []

    def prepare(self, scratch: Path) -> None:
        """Compute each partition and write it to a file; one is in memory at a time.

        A partition that cannot be computed, or is not as announced, is a `LoadError`.
        """
        self._parts = []
        with ExitStack() as stack:
            labels = stack.enter_context(LabelWriter(scratch)) if self._keep_labels else None
            for number, delayed in enumerate(self._frame.to_delayed()):
                self._prepare_part(delayed, number, scratch, labels)
            if labels is not None:
                if not self._parts:
                    labels.add(self._frame._meta.index)  # noqa: SLF001 - Dask's name for it
                labels.finish(self._bounds())
        self._frame = None

    def _prepare_part(
        self, delayed: Any, number: int, scratch: Path, labels: LabelWriter | None
    ) -> None:
        """Compute a partition and write it; one without rows has no mini-batch."""
        frame = _computed(delayed, number, LoadError)
        if not isinstance(frame, pd.DataFrame):
            kind = class_name(type(frame))
            msg = f"partition {number} is a {kind} where a pandas DataFrame was announced."
            raise LoadError(msg)
        if frame.empty:
            return
        if labels is not None:
            labels.add(frame.index)
        frame = self._as_announced(frame.reset_index(drop=True), number)
        folder = scratch / f"partition.{number}"
        folder.mkdir(exist_ok=True)
        part = source_of_frame(frame, self._size) or ObjectFrameSource(frame, self._size)
        del frame
        part.prepare(folder)
        self._parts.append(part)

    def _bounds(self) -> Numbers:
        """Return the row at which each mini-batch begins, and the end."""
        starts, end = [], 0
        for part in self._parts:
            bounds = part.bounds + end
            starts.append(bounds[:-1])
            end = int(bounds[-1])
        return np.concatenate([*starts, np.array([end], np.int64)])

    def _as_announced(self, frame: pd.DataFrame, number: int) -> pd.DataFrame:
        """Return a partition with the columns and types that the collection says it has."""
        if list(frame.columns) != list(self._meta.columns):
            msg = (
                f"partition {number} has the columns {list(frame.columns)} where "
                f"{list(self._meta.columns)} were announced."
            )
            raise LoadError(msg)
        self._meta = _with_known_types(self._meta, frame)
        for name, dtype in self._meta.dtypes.items():
            given = frame[name]
            if given.dtype == dtype:
                continue
            try:
                frame[name] = converted(given, dtype)
            except (TypeError, ValueError) as error:
                msg = (
                    f"partition {number}: column {name!r} is {given.dtype} where {dtype} was "
                    f"announced: {error}"
                )
                raise LoadError(msg) from error
        return frame

    def mini_batches(self) -> Iterator[MiniBatch]:
        """Yield the mini-batches of each partition (after `prepare`)."""
        index = first = 0
        for place, part in enumerate(self._parts):
            for inner in part.mini_batches():
                items = inner.items or 0
                yield inner._replace(
                    index=index,
                    piece=(place, inner),
                    row_lower_bound=first,
                    label=f"partition {place}, {inner.label}",
                )
                index += 1
                first += items

    def count(self) -> int:
        """Return how many mini-batches there are (after `prepare`)."""
        return sum(part.count() for part in self._parts)

    def fingerprint(self) -> dict[str, Any]:
        """Return the fingerprint of the plan (after `prepare`)."""
        return {
            "kind": "dask DataFrame",
            "partitions": [part.fingerprint() for part in self._parts],
        }

    def where(self, mini_batch: MiniBatch) -> Where:
        """Return which rows of its partition."""
        return rows_of(mini_batch.piece[1])

    def reader(self) -> PartitionsReader:
        """Return the reader for the agents (after `prepare`)."""
        return PartitionsReader([part.reader() for part in self._parts])

    def meta(self) -> pd.DataFrame:
        """Return the table without rows."""
        meta: pd.DataFrame = self._meta
        return meta


def _computed(delayed: Any, number: int, error_class: type[DaskprsError]) -> Any:
    """Return a partition; an error of its computation is raised with its number."""
    try:
        return delayed.compute()
    except Exception as error:
        msg = (
            f"data: partition {number} of the dask collection cannot be computed: "
            f"{type(error).__name__}: {error}. Try it alone: .to_delayed()[{number}].compute()."
        )
        raise error_class(msg) from error


def _with_known_types(meta: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    """Return `meta` with values in place of categories, where each partition has its own."""
    for name in meta.columns:
        if isinstance(meta[name].dtype, pd.CategoricalDtype) and _are_unknown(meta[name]):
            values = frame[name]
            if isinstance(values.dtype, pd.CategoricalDtype):
                values = values.cat.categories.to_series()
            # Integers of another partition may be beside nulls.
            dtype = object if values.dtype.kind in "iub" else values.dtype
            meta = meta.astype({name: dtype})
    return meta


def _are_unknown(column: pd.Series) -> bool:
    return UNKNOWN_CATEGORIES in column.cat.categories


class PartitionsReader:
    """Loads slices of partitions."""

    def __init__(self, readers: list[FrameReader | PickledReader]) -> None:
        self._readers = readers

    def load(self, mini_batch: MiniBatch) -> Any:
        """Return the rows of a slice."""
        place, inner = mini_batch.piece
        return self._readers[place].load(inner)

    def pack(self, piece: tuple[int, MiniBatch]) -> bytes:
        """Return the rows of a slice, as the reader of its partition packs them."""
        place, inner = piece
        return self._readers[place].pack(inner.piece)

    def unpack(self, piece: tuple[int, MiniBatch], body: bytes) -> Any:
        """Return the rows that were packed."""
        place, inner = piece
        return self._readers[place].unpack(inner.piece, body)

    def close(self) -> None:
        """Close the files of all partitions."""
        for reader in self._readers:
            reader.close()
