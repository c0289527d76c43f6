"""Frames that the caller holds: written once for the agents, as Arrow or as pickles.

Arrow is a file that agents map. Columns that Arrow would change (any Python objects) are pickled,
slice by slice.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from abc import abstractmethod
from array import array
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from daskprs._arrow.array_parts import pickle_of
from daskprs._arrow.arrow_pandas import (
    AsArrow,
    SliceForm,
    TableForm,
    ToPandas,
    cast,
    one_type,
    without_index,
    without_rows,
)
from daskprs._arrow.exact_casts import MISFITS
from daskprs._arrow.exact_frames import exact_table, exactly
from daskprs._arrow.frame_block import FrameBlock
from daskprs._arrow.sizes import size_bytes
from daskprs._core.mini_batch import MiniBatch, Where
from daskprs._folders.row_labels import LabelWriter, row_bounds
from daskprs._inputs.costs import CutTable
from daskprs._inputs.source.batch_format import no_arrow
from daskprs._inputs.source.columns import check_different
from daskprs._inputs.source.given_types import with_dtypes
from daskprs._inputs.source.pickled_rows import CategoryWriter, Coded, PickledReader, Place
from daskprs._system.atomic_file import whole_file
from daskprs._system.regular_files import keep_to_owner, owner_in
from daskprs.errors import InputError, LoadError, class_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from daskprs._folders.row_labels import Numbers
    from daskprs._inputs.costs import Cuts
    from daskprs._inputs.source.read_options import ReadOptions
    from daskprs._inputs.source.sizes import Size
    from daskprs._inputs.source.source import TableReader, TableSource

ROWS_IN_A_BATCH = 65_536
"""Rows of a record batch of the file: it is written in pieces, never as a second copy."""
BYTES_IN_A_MAP = 64 << 20
"""Pages that have been read count as memory of a process until they are unmapped."""
SAMPLE_ROWS = 1_000
"""Rows whose pickled size is the measure for all rows."""
BLOCKS = "blocks.pickles"
"""The file of a frame that is pickled before it is known how it is cut."""
DIGEST_BYTES = 8 << 20
DIGEST_THREADS = 4
"""SHA-256 of a gigabyte takes 0.9 s on one thread, 0.35 s on four; memory limits more of them."""


class SlicedFrame(CutTable):
    """Cuts a frame into slices, and writes it for the agents.

    The slices have the same number of rows, unless they are `cut` in another way.

    A format is a subclass that writes the frame, sets its digest, and says where a slice lies.
    """

    kind = ""
    numbers_rows = True
    file_name = "frame.arrow"

    def __init__(self, total: int, rows: int) -> None:
        self._total = total
        self._rows = rows
        """Rows of a mini-batch."""
        self._cuts: Numbers | None = None
        """The rows at which mini-batches begin, and the end, if they are cut in another way."""
        self.digest = ""
        """Digest of the rows and their types (after `write`)."""
        self.index: pd.Index | None = None
        """The row labels to keep; None: no labels are kept."""

    def prepare(self, scratch: Path) -> None:
        """Write the frame, and release it, unless it is written already."""
        if not self.digest:
            self._keep_labels(scratch)
            self.write(scratch / self.file_name)

    def blocks(self, scratch: Path) -> TableSource:
        """Write the frame: agents map it, and it can be cut afterwards."""
        self.write(scratch / self.file_name)
        return self

    def cut(self, cuts: Cuts, scratch: Path) -> None:
        """Cut the frame, which is written, into slices of these rows."""
        rows = cuts.get(0, np.empty(0, np.int64))
        self._cuts = np.concatenate([np.zeros(1, np.int64), np.cumsum(rows)])
        self._keep_labels(scratch)

    def _keep_labels(self, scratch: Path) -> None:
        if self.index is not None:
            with LabelWriter(scratch) as labels:
                labels.add(self.index)
                labels.finish(self.bounds)
            self.index = None

    @abstractmethod
    def write(self, path: Path) -> None:
        """Write the file and release the frame."""

    @abstractmethod
    def _slice(self, index: int, start: int, stop: int) -> tuple[tuple[Any, ...], int]:
        """Return where the reader finds the rows of a mini-batch, and their size in bytes."""

    def mini_batches(self) -> Iterator[MiniBatch]:
        """Yield slices of rows (after `prepare`)."""
        for index, (start, stop) in enumerate(self._slices()):
            piece, size_bytes = self._slice(index, start, stop)
            yield MiniBatch(
                index=index,
                piece=piece,
                identity=f"{self.digest}:{start}-{stop}",
                items=stop - start,
                size_bytes=size_bytes,
                row_lower_bound=start,
                label=f"rows {start}-{stop}",
            )

    def _slices(self) -> Iterator[tuple[int, int]]:
        """Yield the first row of each mini-batch, and the row behind its last."""
        if self._cuts is not None:
            yield from pairwise(self._cuts.tolist())
            return
        for start in range(0, self._total, self._rows):
            yield start, min(start + self._rows, self._total)

    def count(self) -> int:
        """Return how many mini-batches there are."""
        return -(-self._total // self._rows) if self._cuts is None else len(self._cuts) - 1

    def usual_rows(self) -> int:
        """Return how many rows a mini-batch has (after `prepare`)."""
        return min(self._rows, self._total)

    @property
    def bounds(self) -> Numbers:
        """The row at which each mini-batch begins, and the end."""
        return row_bounds(self._total, self._rows) if self._cuts is None else self._cuts

    def fingerprint(self) -> dict[str, Any]:
        """Return the fingerprint of the plan (after `prepare`)."""
        return {"kind": self.kind, "content": self.digest, "rows": self._rows}

    def where(self, mini_batch: MiniBatch) -> Where:
        """Return which rows of the frame."""
        first = mini_batch.row_lower_bound or 0
        return Where(rows=(first, first + (mini_batch.items or 0)))


# ---- as Arrow ----


class MappedFrame(SlicedFrame):
    """A frame that is written as an Arrow file, which agents map.

    `form` makes of the Arrow table what the caller gave, or leaves it as it is.
    """

    form: TableForm
    _path = Path()
    _row_bytes = 1.0
    """Mean size of a row."""

    def _digest_of(self, written: str) -> str:
        """Return the digest of rows and types, given that of the file."""
        told = "\n".join([*self.form.described(), written])
        return hashlib.sha256(told.encode("utf-8", "replace")).hexdigest()[:24]

    def _slice(self, index: int, start: int, stop: int) -> tuple[tuple[int, int], int]:
        del index
        return (start, stop - start), int((stop - start) * self._row_bytes)

    def reader(self) -> FrameReader:
        """Return the reader for the agents (after `prepare`)."""
        return FrameReader(str(self._path), self.form)

    def meta(self) -> pd.DataFrame:
        """Return the frame without rows (of a stream, after `prepare`)."""
        return self.form.meta()


class FrameSource(MappedFrame):
    """Cuts a frame by rows: size ÷ mean Arrow bytes of a row, whatever pandas' version."""

    kind = "frame"
    keeps_nan = True

    def __init__(self, table: pa.Table, size: Size, form: TableForm) -> None:
        rows = max(1, table.num_rows)
        self.needed_bytes = size_bytes(table)
        self._row_bytes = max(1.0, self.needed_bytes / rows)
        super().__init__(table.num_rows, size.rows_of(rows, max(rows, self.needed_bytes)))
        self._table = table.replace_schema_metadata(None)
        self.form = form

    def write(self, path: Path) -> None:
        """Write the Arrow file and release the table."""
        self._path = path
        batches = self._table.to_batches(max_chunksize=ROWS_IN_A_BATCH)
        self.digest = self._digest_of(write_arrow(path, self._table.schema, batches))
        self._table = self._table.schema.empty_table()

    @property
    def schema(self) -> pa.Schema:
        """The types of the columns in Arrow."""
        return self._table.schema


def write_arrow(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> str:
    """Write the Arrow file that agents map, one batch at a time, and return its digest."""
    with (
        whole_file(path, durable=False) as file,
        ThreadPoolExecutor(DIGEST_THREADS, "digest") as threads,
    ):
        hashing = HashingWriter(file, threads)
        with pa.ipc.new_file(hashing, schema) as writer:
            for batch in batches:
                writer.write_batch(_compact(batch))
        return hashing.digest()


def _compact(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same rows in memory of their own.

    Arrow would fill the last bytes of a buffer with those of rows that follow in memory, and the
    same rows would have another digest elsewhere.
    """
    columns = [pa.concat_arrays([column, column.slice(0, 0)]) for column in batch.columns]
    return pa.record_batch(columns, schema=batch.schema)


class FrameReader:
    """Slices the mapped file; the Arrow data in it may `end` before the file does."""

    is_mapped = True
    """Nothing is read for a slice: its rows are in memory, or next to it."""

    def __init__(self, path: str, form: SliceForm, end: int | None = None) -> None:
        self._path = path
        self._form = form
        self._end = end
        self._table: pa.Table | None = None
        self._block: FrameBlock | None = None
        self._read_bytes = 0

    def load(self, mini_batch: MiniBatch) -> pd.DataFrame | pa.Table:
        """Return the rows of a slice, with a new index."""
        start, count = mini_batch.piece
        if self._table is None or self._read_bytes > BYTES_IN_A_MAP:
            self._table = self._block = None
            self._table = self._mapped()
            if isinstance(self._form, ToPandas):
                self._block = FrameBlock(self._form)
            self._read_bytes = 0
        self._read_bytes += mini_batch.size_bytes or 0
        if self._block is not None:
            return self._block.frame(self._table, start, count)
        return self._form.frame(self._table.slice(start, count))

    def pack(self, piece: tuple[int, int]) -> bytes:
        """Return the rows of a slice as an Arrow stream."""
        sink = pa.BufferOutputStream()
        rows = self._mapped().slice(*piece)
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        body: bytes = sink.getvalue().to_pybytes()
        return body

    def unpack(self, piece: tuple[int, int], body: bytes) -> pd.DataFrame | pa.Table:
        """Return the rows of such a stream, with a new index."""
        del piece
        with pa.ipc.open_stream(body) as stream:
            return self._form.frame(stream.read_all())

    def close(self) -> None:
        """Unmap the file."""
        self._table = self._block = None

    def _mapped(self) -> pa.Table:
        with pa.memory_map(self._path) as file:
            return pa.ipc.open_file(file, self._end).read_all()


class HashingWriter:
    """Writes to a file, and digests the same memory on other threads, without a copy.

    The memory must not change afterwards: Arrow buffers, not a buffer that is used again.
    """

    closed = False

    def __init__(self, file: IO[bytes], threads: ThreadPoolExecutor) -> None:
        self._file = file
        self._threads = threads
        self._piece: list[Any] = []
        self._piece_bytes = 0
        self._digests: list[Future[bytes]] = []

    def write(self, data: Any) -> int:
        """Write Arrow's buffer, or bytes."""
        self._piece.append(data)
        self._piece_bytes += len(data)
        if self._piece_bytes >= DIGEST_BYTES:
            self._begin()
        return self._file.write(data)

    def tell(self) -> int:
        """Return the position."""
        return self._file.tell()

    def flush(self) -> None:
        """Flush the file."""
        self._file.flush()

    def digest(self) -> str:
        """Return the digest of all that was written."""
        whole = hashlib.sha256()
        for one in self._digests:
            whole.update(one.result())
        whole.update(_digest(self._piece))  # a thread would cost a small table more
        return whole.hexdigest()

    def _begin(self) -> None:
        if len(self._digests) >= 2 * DIGEST_THREADS:  # a digest keeps the memory of its piece
            self._digests[-2 * DIGEST_THREADS].result()
        self._digests.append(self._threads.submit(_digest, self._piece))
        self._piece, self._piece_bytes = [], 0


def _digest(buffers: list[Any]) -> bytes:
    digest = hashlib.sha256()
    for buffer in buffers:
        digest.update(buffer)
    return digest.digest()


def source_of_frame(frame: pd.DataFrame, size: Size) -> FrameSource | None:
    """Return the source of a frame, if Arrow gives back the very same frame; else None."""
    exact = exact_table(frame)
    return None if exact is None else FrameSource(exact[0], size, exact[1])


def arrow_source_of_frame(frame: pd.DataFrame, size: Size) -> FrameSource:
    """Return the source of a frame that gives Arrow tables; labels become text.

    A column that no type of Arrow holds is an `InputError`.
    """
    labels = [str(label) for label in frame.columns]
    try:
        table = exactly(frame).rename_columns(labels).unify_dictionaries()
    except MISFITS:
        for place, label in enumerate(frame.columns):
            try:
                pa.array(frame.iloc[:, place])
            except MISFITS as error:
                raise InputError("data: ", *no_arrow(label, error)) from error
        raise
    return FrameSource(table, size, AsArrow(table.schema))


def source_of_table(table: pa.Table, reading: ReadOptions) -> FrameSource:
    """Return the source of an Arrow table; its frames are those of `Table.to_pandas`.

    Columns of the option `dtypes` have the types that are given; values that do not fit, or that
    pandas cannot hold, are an `InputError`.
    """
    dtypes, as_arrow = reading.dtypes, reading.as_arrow
    check_different(list(dtypes), table.column_names, "dtypes")
    schema = without_index(table.schema)
    table = table.select([place for place, field in enumerate(table.schema) if field in schema])
    labels = None
    if not as_arrow and len(set(schema.names)) < len(schema):
        labels = pd.Index(schema.names)
        table = table.rename_columns([str(place) for place in range(len(schema))])
        schema = table.schema.remove_metadata()
    try:
        table = table.unify_dictionaries()
        columns = zip(table.column_names, table.columns, strict=True)
        with_nulls = [name for name, column in columns if column.null_count]
        typed = with_dtypes(schema, dtypes, with_nulls)
        types = one_type(typed, with_nulls, dtypes, as_arrow=as_arrow)
        table = cast(table, types, "data", InputError)
        if as_arrow:
            return FrameSource(table, reading.size, AsArrow(types.schema))
        to_pandas = ToPandas(without_rows(table), types.objects, labels)
        to_pandas.meta()
    except LoadError as error:  # of categories, which a table without rows has, too
        msg = f"data: {error}"
        raise InputError(msg) from error
    except pa.ArrowException as error:
        msg = f"data: {'Arrow' if as_arrow else 'pandas'} cannot hold this table: {error}"
        raise InputError(msg) from error
    return FrameSource(table, reading.size, to_pandas)


# ---- as pickles ----


class ObjectFrameSource(SlicedFrame):
    """Cuts a frame by rows: size ÷ mean pickled bytes of its first rows.

    A cell that cannot be pickled is an `InputError`.
    """

    kind = "object frame"
    file_name = "frame.pickles"

    def __init__(self, frame: pd.DataFrame, size: Size) -> None:
        sample = frame.iloc[:SAMPLE_ROWS].reset_index(drop=True)  # as `write` has the rows
        sample_bytes = len(_pickled(CategoryWriter(io.BytesIO()).coded(sample)[0], 0))
        super().__init__(len(frame), size.rows_of(max(1, len(sample)), sample_bytes))
        self._size = size
        self._frame = frame
        self._meta: pd.DataFrame = pickle.loads(  # a slice would hold the memory of all rows
            pickle.dumps(frame.iloc[:0].reset_index(drop=True))
        )
        self._path = Path()
        self._owner: int | None = None
        self._begins, self._ends = array("q"), array("q")

    def write(self, path: Path) -> None:
        """Write the pickles and release the frame."""
        self._path, self._owner = path, owner_in(path.parent)
        digest = hashlib.blake2b()
        with whole_file(path, durable=False) as file:
            keep_to_owner(file)
            categories = CategoryWriter(file)
            for start, stop in self._slices():
                rows = self._frame.iloc[start:stop].reset_index(drop=True)
                piece, behind = categories.coded(rows)
                body = _pickled(piece, start)
                digest.update(body)
                self._begins.append(file.tell())
                file.write(body + behind)
                self._ends.append(file.tell())
        self.digest = digest.hexdigest()[:24]
        self._frame = self._meta

    def blocks(self, scratch: Path) -> TableSource:
        """Return the same frame, written in pieces of its own: pickles cannot be cut afterwards."""
        self._blocks = ObjectFrameSource(self._frame, self._size)
        self._blocks.write(scratch / BLOCKS)
        return self._blocks

    def reader_of(self, column: str) -> TableReader:
        """Return the reader of these pieces."""
        del column
        return self._blocks.reader()

    def cut(self, cuts: Cuts, scratch: Path) -> None:
        """Cut the frame, and write it."""
        super().cut(cuts, scratch)
        self.write(scratch / self.file_name)
        (scratch / BLOCKS).unlink(missing_ok=True)

    def _slice(self, index: int, start: int, stop: int) -> tuple[Place, int]:
        del start, stop
        begin, end = self._begins[index], self._ends[index]
        return (self._path.name, begin, end - begin), end - begin

    def reader(self) -> PickledReader:
        """Return the reader for the agents (after `prepare`)."""
        return PickledReader(self._path.parent, self._owner)

    def meta(self) -> pd.DataFrame:
        """Return the frame without rows."""
        return self._meta


def _pickled(piece: pd.DataFrame | Coded, first_row: int) -> bytes:
    """Return the pickle of some rows, or name the cell that cannot be pickled."""
    try:
        return pickle_of(piece)
    except Exception as error:  # any class of the caller has its own error where it has no pickle
        rows = piece.rows if isinstance(piece, Coded) else piece
        msg = (
            f"data: {unpicklable_cell(rows, first_row)} cannot be sent to the agents: "
            f"{type(error).__name__}: {error}. Keep plain values in the frame, and make what "
            "cannot be pickled (a lock, a connection, a generator) in init()."
        )
        raise InputError(msg) from error


def unpicklable_cell(piece: pd.DataFrame, first_row: int) -> str:
    """Return the place and class of the first cell that cannot be pickled."""
    for place, name in enumerate(piece.columns):
        column = piece.iloc[:, place]
        for row, cell in enumerate(column if column.dtype == object else ()):
            try:
                pickle.dumps(cell, protocol=5)
            except Exception:  # noqa: BLE001 - a class may raise anything
                kind = class_name(type(cell))
                return f"column {name!r}, row {first_row + row}: the {kind} there"
    return "the frame"
