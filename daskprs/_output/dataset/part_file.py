"""A part file of a data set, made of committed rows by any process that sees them.

`write_part` depends on its plan alone. Rows pass through memory in pieces, so that what a process
needs does not grow with the part.
"""

from __future__ import annotations

import errno
import io
import operator
import os
import zlib
from array import array
from contextlib import closing, suppress
from functools import reduce
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from daskprs._arrow.sizes import size_bytes
from daskprs._output.journal.history import PublishedFile, PublishedPart
from daskprs._output.rows.part_formats import (
    UNFIT,
    RowsInOrder,
    schema_in_file,
    unwritable_column,
    without_views,
    writer_of,
)
from daskprs._output.spool import Region, damaged, holds, write_at
from daskprs._system.regular_files import open_regular
from daskprs.errors import Option, OutputError, ReturnTypeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from _typeshed import ReadableBuffer

    from daskprs._output.publish.open_uploads import OpenUploads
    from daskprs._output.rows.row_schema import RowSchema

ROW_GROUP_BYTES = 8 << 20
"""Bytes of Arrow rows that make a row group."""
MOST_HELD_BYTES = 32 << 20
"""Bytes of rows that wait for their row groups, in all files of a part together."""
MOST_KEPT_BYTES = 2 * MOST_HELD_BYTES
"""Bytes of row groups of earlier files that are kept: they waited together when they were made."""
MOST_FOLDERS = 1_000
"""Most folders of one part: each has an open file."""
WRITE_BYTES = 1 << 20
SHOWN = 40
"""Characters of a long value that an error shows."""


class RowsFile(NamedTuple):
    """A file that rows are taken from."""

    path: str
    folder: str | None = None
    """The folder, within the data set, of an earlier part file; None: a spool."""


class Sources(NamedTuple):
    """The places of the rows of mini-batches, as columns; a mini-batch may lie in several files."""

    mini_batch: array[int]
    file: array[int]
    """The number of the file in the plan."""
    start: array[int]
    """The first byte in a spool, the first row in a part file."""
    count: array[int]  # type: ignore[assignment] # tuple.count is of no use here
    """The number of bytes or rows."""
    checksum: array[int]
    """The checksum of bytes in a spool."""

    @classmethod
    def none(cls) -> Sources:
        """Return columns without rows."""
        return cls(*(array("q") for _ in cls._fields))

    def add(self, *values: int) -> None:
        """Add a row."""
        for column, value in zip(self, values, strict=True):
            column.append(value)


class PartPlan(NamedTuple):
    """The rows and the form of a part."""

    folder: str
    """The folder of the data set."""
    name: str
    """The name of each file of the part."""
    format: str
    schema: RowSchema
    metadata: dict[bytes, bytes] | None
    """Metadata of the schema of the files, such as the types of pandas."""
    partition_by: tuple[str, ...]
    files: list[RowsFile]
    sources: Sources
    uploads: OpenUploads | None = None
    """Uploads each file once the file is finished; None: the files stay here."""

    @property
    def schema_in_files(self) -> pa.Schema:
        """The schema of the files, without the columns that folders stand for."""
        schema = self.schema.schema or pa.schema([])
        kept = [field for field in schema if field.name not in self.partition_by]
        return schema_in_file(self.format, pa.schema(kept, self.metadata or None))


def write_part(plan: PartPlan, is_unwanted: Callable[[], bool] = lambda: False) -> PublishedPart:
    """Write the files of a part, synced; a file for each combination of values that makes folders.

    Without `is_unwanted` no other thread can end the work. The counts of a file are those of its
    rows from each of the plan's mini-batches that have rows there or elsewhere, in order. A file
    that goes to a store of objects is uploaded, and its upload stays open.

    Raise `JournalError` when the rows of a mini-batch are not those that were committed,
    `ReturnTypeError` when they do not fit the schema or the format, `OutputError` when the values
    of columns would make too many folders, and `OSError` when a file cannot be written, above all
    on a full disk.
    """
    with closing(_PartFiles(plan)) as files:
        earlier = _EarlierFiles(plan.format)
        for mini_batch, sources in groupby(zip(*plan.sources, strict=True), key=itemgetter(0)):
            for _, number, start, count, checksum in sources:
                source = plan.files[number]
                if source.folder is None:
                    files.take_region(mini_batch, Path(source.path), Region(start, count, checksum))
                elif count:
                    files.take_rows(earlier.rows_of(source), source.folder, start, count)
                if is_unwanted():
                    return PublishedPart(0, [])
            files.next_mini_batch()
        made = files.finish()
    if plan.uploads is not None:
        until_s = plan.uploads.until_s(sum(one.size for one in made.files))
        for one in made.files:
            plan.uploads.send(Path(plan.folder, one.name), one.name, is_unwanted, until_s)
    return made


def tables_in(
    path: Path, region: Region, mini_batch: int
) -> Iterator[tuple[pa.Schema, pa.Table | None]]:
    """Yield the record batches of a region, each as a table; None for a stream without rows.

    Raise `JournalError` when the bytes are not those that were committed.
    """
    try:
        with open_regular(path) as file:
            if not holds(file, region):
                raise damaged(mini_batch)
        with pa.OSFile(str(path)) as source:
            source.seek(region.offset)
            while source.tell() < region.offset + region.length:
                reader, has_rows = pa.ipc.open_stream(source), False
                for batch in reader:
                    has_rows = True
                    yield reader.schema, pa.Table.from_batches([batch])
                if not has_rows:
                    yield reader.schema, None
    except (pa.ArrowInvalid, FileNotFoundError) as error:
        raise damaged(mini_batch) from error


class _EarlierFiles:
    """The files of earlier parts that rows are taken from; those used last keep a row group."""

    def __init__(self, format_: str) -> None:
        self._format = format_
        self._rows: dict[str, RowsInOrder] = {}
        self._last: RowsInOrder | None = None
        self._kept: dict[RowsInOrder, int] = {}
        """Bytes of row groups, the last used one at the end."""
        self._kept_bytes = 0

    def rows_of(self, source: RowsFile) -> RowsInOrder:
        """Return the reader of a file; other readers drop row groups if too many are held."""
        if self._last is not None:
            self._kept_bytes += self._last.held_bytes - self._kept.pop(self._last, 0)
            self._kept[self._last] = self._last.held_bytes
        while self._kept_bytes > MOST_KEPT_BYTES and len(self._kept) > 1:
            oldest = next(iter(self._kept))
            self._kept_bytes -= self._kept.pop(oldest)
            oldest.drop()
        if source.path not in self._rows:
            self._rows[source.path] = RowsInOrder(self._format, Path(source.path))
        self._last = self._rows[source.path]
        return self._last


class _PartFiles:
    """The files of a part: one, or one in each folder."""

    def __init__(self, plan: PartPlan) -> None:
        self._plan = plan
        self._schema = plan.schema_in_files
        self._files: dict[str, _PartFile] = {}
        self._held_bytes = 0
        self._place = 0
        self._mini_batches = list(dict.fromkeys(plan.sources.mini_batch))
        if not plan.partition_by:
            self._file_in("")

    def take_region(self, mini_batch: int, path: Path, region: Region) -> None:
        """Take the rows of a mini-batch from a spool, for the files of their folders."""
        names, row = self._plan.partition_by, 0
        for _, table in tables_in(path, region, mini_batch):
            if table is not None:
                rows = self._plan.schema.cast(table, mini_batch, row)
                row += table.num_rows
                for folder, some in _by_folder(rows, names) if names else [("", rows)]:
                    self._put(self._file_in(folder), self._fitting(some))

    def take_rows(self, rows: RowsInOrder, folder: str, start: int, count: int) -> None:
        """Take rows from an earlier part; lines of JSON have no types, and are copied."""
        file = self._file_in(folder)
        if self._plan.format == "jsonl":
            self._held_bytes -= file.held_bytes
            file.copy(rows.lines(start, count), self._place)
            return
        for table in rows.tables(start, count, self._schema):
            self._put(file, table)

    def _put(self, file: _PartFile, table: pa.Table) -> None:
        """Put rows into a file, and write the largest waiting row group if too much waits."""
        before = file.held_bytes
        file.add(table, self._place)
        self._held_bytes += file.held_bytes - before
        while self._held_bytes > MOST_HELD_BYTES:
            largest = max(self._files.values(), key=lambda one: one.held_bytes)
            self._held_bytes -= largest.held_bytes
            largest.write_group()

    def _file_in(self, folder: str) -> _PartFile:
        """Return the file in a folder, which is made with its first rows."""
        if folder not in self._files:
            if len(self._files) >= MOST_FOLDERS:
                msg = (
                    f"the values of {', '.join(self._plan.partition_by)} make more than "
                    f"{MOST_FOLDERS:,} folders in one part of the data set. {_OTHER_FOLDERS}, "
                    f"which have fewer values, or with a smaller {Option('output_file_size')}."
                )
                raise OutputError(msg)
            name = f"{folder}/{self._plan.name}".lstrip("/")
            path = Path(self._plan.folder, name)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._files[folder] = _PartFile(
                    path, name, self._plan.format, self._schema, self._mini_batches
                )
            except OSError as error:
                # Any other error of the system is taken for a full disk, for which the finished
                # parts are given up.
                if error.errno != errno.ENAMETOOLONG:
                    raise
                raise _too_long(folder) from error
        return self._files[folder]

    def next_mini_batch(self) -> None:
        """Count the rows that follow for the next mini-batch."""
        self._place += 1

    def finish(self) -> PublishedPart:
        """End and sync the files; return them by name."""
        files = [self._files[folder].finish(self._place) for folder in sorted(self._files)]
        return PublishedPart(self._place, files)

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()

    def _fitting(self, table: pa.Table) -> pa.Table:
        table = table.select(self._schema.names)
        if table.schema.equals(self._schema):
            return table
        # Not `Table.cast`: pyarrow 26 breaks a column of fixed-size lists of nulls when it casts it
        # to the type that it has.
        columns = [
            column if column.type.equals(field.type) else column.cast(field.type)
            for column, field in zip(table.columns, self._schema, strict=True)
        ]
        return pa.table(columns, schema=self._schema)


class _PartFile:
    """One file: rows wait until they make a row group."""

    def __init__(
        self, path: Path, name: str, format_: str, schema: pa.Schema, mini_batches: list[int]
    ) -> None:
        self.held_bytes = 0
        self._format = format_
        self._mini_batches = mini_batches
        self._places: list[int] = []
        """The places of the mini-batches that wait, in order."""
        self._name = name
        self._sink = _SyncedFile(path)
        self._buffer = io.BufferedWriter(self._sink, WRITE_BYTES)
        self._writer = writer_of(format_, self._buffer, schema)
        self._waiting: list[pa.Table] = []
        self._counts: dict[int, int] = {}

    def add(self, table: pa.Table, place: int) -> None:
        """Take rows of the mini-batch at a place of the plan."""
        self._counts[place] = self._counts.get(place, 0) + table.num_rows
        self._waiting.append(table)
        self._places.append(place)
        self.held_bytes += size_bytes(table)
        if self.held_bytes >= ROW_GROUP_BYTES:
            self.write_group()

    def copy(self, lines: Iterator[bytes], place: int) -> None:
        """Take lines of the mini-batch at a place of the plan."""
        self.write_group()
        count = 0
        for line in lines:
            self._buffer.write(line)
            count += 1
        self._counts[place] = self._counts.get(place, 0) + count

    def write_group(self) -> None:
        """Write the waiting rows."""
        if self._waiting:
            group, self._waiting, self.held_bytes = pa.concat_tables(self._waiting), [], 0
            places, self._places = self._places, []
            try:
                self._writer.write(group)
            except UNFIT as error:
                name = unwritable_column(self._format, group)
                if name is None:
                    raise
                numbers = [self._mini_batches[place] for place in (places[0], places[-1])]
                raise _unwritable(group.schema.field(name), self._format, numbers, error) from error

    def finish(self, places: int) -> PublishedFile:
        """Write the end of the file, and sync it."""
        self.write_group()
        self._writer.close()
        self._buffer.flush()
        self._sink.sync()
        counts = [self._counts.get(place, 0) for place in range(places)]
        return PublishedFile(
            self._name, sum(counts), self._sink.length, self._sink.checksum, counts
        )

    def close(self) -> None:
        """Close the file; the rest of an unfinished one is dropped."""
        self._sink.drop()
        with suppress(pa.ArrowException):
            self._writer.close()
        self._buffer.close()


class _SyncedFile(io.RawIOBase):
    """A file that is written from its start, with the checksum of its bytes."""

    def __init__(self, path: Path) -> None:
        self.length = self.checksum = 0
        self._fd: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)

    def writable(self) -> bool:
        """Say that it can be written to."""
        return True

    def write(self, piece: ReadableBuffer) -> int:
        """Write bytes."""
        view = memoryview(piece).cast("B")
        if self._fd is not None:
            write_at(self._fd, view, self.length)
        self.length += len(view)
        self.checksum = zlib.crc32(view, self.checksum)
        return len(view)

    def sync(self) -> None:
        """Make the file durable, and close it."""
        if self._fd is not None:
            os.fsync(self._fd)
        self.drop()

    def drop(self) -> None:
        """Close the file, and ignore what is still written."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def _unwritable(
    field: pa.Field, format_: str, numbers: list[int], error: Exception
) -> ReturnTypeError:
    """Return the error for a column with a value that the format cannot hold."""
    first, last = numbers
    among = f"mini-batch {first}" if first == last else f"mini-batches {first} to {last}"
    return ReturnTypeError(
        f"column {field.name!r} ({field.type}) has a value in {among} that "
        f"{Option('output_format', format_)} cannot hold: {error}. Return other values or another "
        "type, and begin the job anew."
    )


_OTHER_FOLDERS = f"Begin the job anew with other columns in {Option('output_partition_by')}"


def _too_long(folder: str) -> OutputError:
    """Return the error for a value that makes too long a name."""
    name, _, value = max(folder.split("/"), key=len).partition("=")
    return OutputError(
        f"a value of the column {name!r} makes a folder's name of {len(value):,} characters, which "
        f"the file system refuses as too long: {value[:SHOWN]}… {_OTHER_FOLDERS}, "
        "which have shorter values."
    )


def _by_folder(table: pa.Table, names: tuple[str, ...]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows for each folder in their order."""
    import pyarrow.dataset as ds

    table = without_views(table)
    keys = pa.table({name: _plain(table.column(name).combine_chunks()) for name in names})
    number = np.zeros(table.num_rows, np.int64)
    for column in keys.columns:
        codes = column.chunk(0).dictionary_encode(null_encoding="encode")
        number = number * (len(codes.dictionary) + 1) + codes.indices.to_numpy()
        _, number = np.unique(number, return_inverse=True)
    order = np.argsort(number, kind="stable")
    starts = np.flatnonzero(np.diff(number[order], prepend=-1))
    hive = ds.partitioning(keys.schema, flavor="hive")
    for start, stop in pairwise([*starts.tolist(), len(order)]):
        values = keys.slice(order[start], 1).to_batches()[0]
        folder, _ = hive.format(_fulfilled_by(values))
        yield folder, table.take(pa.array(order[start:stop]))


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _fulfilled_by(values: pa.RecordBatch) -> Any:
    """Return the condition that the values of one row fulfil."""
    import pyarrow.dataset as ds

    conditions = [
        ds.field(name) == column[0] if column[0].is_valid else ds.field(name).is_null()
        for name, column in zip(values.schema.names, values.columns, strict=True)
    ]
    return reduce(operator.and_, conditions)
