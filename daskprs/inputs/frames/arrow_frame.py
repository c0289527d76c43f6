"""Frames that the caller holds: written once to a file that agents map."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from daskprs.core.mini_batch import MiniBatch, Where
from daskprs.errors import InputError
from daskprs.folders.row_labels import LabelWriter, row_bounds
from daskprs.inputs.frames.hashing_writer import HashingWriter
from daskprs.inputs.source.arrow_pandas import (
    ToPandas,
    cast,
    one_type,
    with_dtypes,
    without_index,
    without_rows,
)
from daskprs.inputs.source.columns import check_different
from daskprs.system.atomic_file import whole_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from daskprs.folders.row_labels import Numbers
    from daskprs.inputs.source.input_file import InputFile
    from daskprs.inputs.source.source import Unit

ROWS_IN_A_BATCH = 65_536
"""Rows of a record batch of the file: it is written in pieces, never as a second copy."""
BYTES_IN_A_MAP = 64 << 20
"""Pages that have been read count as memory of a process until they are unmapped."""


class FrameSource:
    """Cuts a frame by rows: size ÷ mean Arrow bytes of a row, whatever pandas' version.

    Parameters
    ----------
    table
        The rows.
    size_bytes
        Bytes of a mini-batch.
    to_pandas
        The converter from Arrow back to the frame.

    """

    unit: Unit = "row"
    how_far = ""

    def __init__(self, table: pa.Table, size_bytes: int, to_pandas: ToPandas) -> None:
        self._table = table.replace_schema_metadata(None)
        self._to_pandas = to_pandas
        mean = max(1.0, table.nbytes / max(1, table.num_rows))
        self._rows = max(1, int(size_bytes / mean))
        self._total: int = table.num_rows
        self._row_bytes = mean
        self._digest = ""
        self._path = ""
        self.index: pd.Index | None = None
        """The row labels to keep; None: no labels are kept."""

    def prepare(self, scratch: Path) -> None:
        """Write the file, and let go of the frame."""
        if self.index is not None:
            keep_labels(scratch, self.index, self.bounds)
            self.index = None
        self._path = str(scratch / "frame.arrow")
        meta = self.meta()
        columns = [f"{name!r}: {dtype}" for name, dtype in zip(meta, meta.dtypes, strict=True)]
        with whole_file(Path(self._path), durable=False) as file, HashingWriter(file) as digested:
            with pa.ipc.new_file(digested, self._table.schema) as writer:
                for batch in self._table.to_batches(max_chunksize=ROWS_IN_A_BATCH):
                    writer.write_batch(batch)
            columns.append(digested.digest())
        self._digest = hashlib.sha256("\n".join(columns).encode("utf-8", "replace")).hexdigest()[
            :24
        ]
        self._table = self._table.schema.empty_table()

    def mini_batches(self) -> Iterator[MiniBatch]:
        """Yield slices of rows (after `prepare`)."""
        for one in row_slices(self._total, self._rows, self._digest):
            start, count = one.row_lower_bound or 0, one.items or 0
            yield one._replace(piece=(start, count), size_bytes=int(count * self._row_bytes))

    def count(self) -> int:
        """Return how many mini-batches there are."""
        return -(-self._total // self._rows)

    @property
    def bounds(self) -> Numbers:
        """The row at which each mini-batch begins, and the end."""
        return row_bounds(self._total, self._rows)

    def fingerprint(self) -> dict[str, Any]:
        """Return what the plan depends on (after `prepare`)."""
        return {"kind": "frame", "content": self._digest, "rows": self._rows}

    def files(self) -> tuple[InputFile, ...]:
        """Return none: the frame is written for the job."""
        return ()

    def reader(self) -> FrameReader:
        """Return the reader for the agents (after `prepare`)."""
        return FrameReader(self._path, self._to_pandas)

    def where(self, mini_batch: MiniBatch) -> Where:
        """Return which rows of the frame."""
        return rows_of(mini_batch)

    def meta(self) -> pd.DataFrame:
        """Return the frame without rows."""
        return self._to_pandas.meta()

    @property
    def path_names(self) -> list[str]:
        """Return nothing: a frame has no path."""
        return []

    def path_values(self, mini_batch: MiniBatch) -> dict[str, Any]:
        """Return nothing: a frame has no path."""
        del mini_batch
        return {}


def keep_labels(scratch: Path, index: pd.Index, bounds: Numbers) -> None:
    """Write the labels of a frame's rows beside its file."""
    with LabelWriter(scratch) as labels:
        labels.add(index)
        labels.finish(bounds)


def row_slices(total: int, rows: int, digest: str) -> Iterator[MiniBatch]:
    """Yield mini-batches of `rows` rows each; the source fills in where their rows lie."""
    for index, start in enumerate(range(0, total, rows)):
        stop = min(start + rows, total)
        yield MiniBatch(
            index=index,
            piece=None,
            identity=f"{digest}:{start}-{stop}",
            items=stop - start,
            row_lower_bound=start,
            label=f"rows {start}-{stop}",
        )


def rows_of(mini_batch: MiniBatch) -> Where:
    """Return the frame rows that a mini-batch holds."""
    first = mini_batch.row_lower_bound or 0
    return Where(rows=(first, first + (mini_batch.items or 0)))


class FrameReader:
    """Slices the mapped file."""

    def __init__(self, path: str, to_pandas: ToPandas) -> None:
        self._path = path
        self._to_pandas = to_pandas
        self._table: pa.Table | None = None
        self._read_bytes = 0

    def load(self, mini_batch: MiniBatch) -> pd.DataFrame:
        """Return the rows of a slice, with a new index."""
        start, count = mini_batch.piece
        if self._table is None or self._read_bytes > BYTES_IN_A_MAP:
            self._table = None
            self._table = self._mapped()
            self._read_bytes = 0
        self._read_bytes += mini_batch.size_bytes or 0
        return self._to_pandas.frame(self._table.slice(start, count))

    def pack(self, piece: tuple[int, int]) -> bytes:
        """Return the rows of a slice as an Arrow stream."""
        sink = pa.BufferOutputStream()
        rows = self._mapped().slice(*piece)
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        body: bytes = sink.getvalue().to_pybytes()
        return body

    def unpack(self, piece: tuple[int, int], body: bytes) -> pd.DataFrame:
        """Return the rows of such a stream, with a new index."""
        del piece
        with pa.ipc.open_stream(body) as stream:
            return self._to_pandas.frame(stream.read_all())

    def close(self) -> None:
        """Unmap the file."""
        self._table = None

    def _mapped(self) -> pa.Table:
        with pa.memory_map(self._path) as file:
            return pa.ipc.open_file(file).read_all()


def source_of_frame(frame: pd.DataFrame, size_bytes: int) -> FrameSource | None:
    """Return the source of a frame, if Arrow gives back the very same frame; else None."""
    if type(frame) is not pd.DataFrame or frame.columns.empty:
        return None
    if any(isinstance(dtype, np.dtype) and dtype.kind == "O" for dtype in frame.dtypes):
        return None
    try:
        table = _exactly(frame)
        to_pandas = ToPandas(without_rows(table), labels=frame.columns)
        back = to_pandas.frame(table.slice(0, 1))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    same = all(map(_is_same, back.dtypes, frame.dtypes))
    return FrameSource(table, size_bytes, to_pandas) if same else None


def _exactly(frame: pd.DataFrame) -> pa.Table:
    """Return a frame as Arrow, its columns numbered; what is not a number stays one."""
    numbered = frame.copy(deep=False)
    numbered.columns = pd.Index([str(place) for place in range(frame.shape[1])])
    numbered.attrs = {}
    numbers = {
        name: pa.array(numbered[name].to_numpy(), from_pandas=False)  # without a look for NaN
        for name, dtype in numbered.dtypes.items()
        if isinstance(dtype, np.dtype) and dtype.kind in "iufb"
    }
    rest = pa.Table.from_pandas(numbered.drop(columns=list(numbers)), preserve_index=False)
    columns = [numbers[name] if name in numbers else rest.column(name) for name in numbered]
    return pa.table(columns, names=list(numbered), metadata=rest.schema.metadata)


def _is_same(dtype: Any, other: Any) -> bool:
    if isinstance(dtype, pd.CategoricalDtype) and isinstance(other, pd.CategoricalDtype):
        return dtype.ordered == other.ordered and dtype.categories.identical(other.categories)
    return bool(dtype == other)


def source_of_table(
    table: pa.Table, size_bytes: int, dtypes: Mapping[str, Any] | None = None
) -> FrameSource:
    """Return the source of an Arrow table; its frames are those of `Table.to_pandas`.

    Columns of `dtypes` have the types that are asked for.

    Raises
    ------
    InputError
        For types that pandas knows nothing like, or a value that does not fit its type.
    OptionError
        For a type that a column cannot have.

    """
    check_different(list(dtypes or ()), table.column_names, "dtypes")
    schema = without_index(table.schema)
    table = table.select([place for place, field in enumerate(table.schema) if field in schema])
    labels = None
    if len(set(schema.names)) < len(schema):
        labels = pd.Index(schema.names)
        table = table.rename_columns([str(place) for place in range(len(schema))])
        schema = table.schema.remove_metadata()
    try:
        table = table.unify_dictionaries()
        with_nulls = [name for name in schema.names if table.column(name).null_count]
        typed = with_dtypes(schema, dtypes or {}, with_nulls)
        types = one_type(typed, with_nulls, dtypes or ())
        table = cast(table, types, "data", InputError)
        to_pandas = ToPandas(without_rows(table), types.objects, labels)
    except pa.ArrowException as error:
        msg = f"data: pandas cannot hold this table: {error}"
        raise InputError(msg) from error
    return FrameSource(table, size_bytes, to_pandas)
