"""Rows as Arrow streams, of which the part files of a data set are made.

The rows of one attempt are one or several streams after each other, since `run` may return blocks
with different types. Rows that pandas or Python holds become Arrow as in `DataFrame.to_parquet`:
NaN is null. A block without rows leaves a stream without batches: it announces columns.
"""

from __future__ import annotations

import io
from bisect import bisect_left
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from daskprs._arrow.exact_casts import MISFITS
from daskprs._arrow.object_times import as_times
from daskprs._arrow.sizes import size_bytes
from daskprs._output.rows.blocks import in_arrow, is_small, roomy, with_times
from daskprs._output.rows.part_formats import (
    check_folders,
    check_writable,
    with_text_of_periods,
)
from daskprs._output.rows.result_tables import RESULT
from daskprs.errors import ReturnTypeError, class_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from daskprs._output.rows.blocks import Block
    from daskprs._output.spec import OutputSpec
    from daskprs._output.spool import Sink

BATCH_BYTES = 4 << 20
"""Most bytes of a record batch: whoever reads a stream holds one batch at a time."""
FRAME_BYTES = 64 << 20
"""Bytes of a pandas frame above which it becomes Arrow in pieces."""
ELEMENTS = 10_000
"""Elements of a generator that get one type together; a list has one type as a whole."""
WRITE_BYTES = 1 << 16


class ArrowRows:
    """Writes blocks as Arrow streams; elements of lists make the column ``result``."""

    header: str | None = None
    """Part files have no header line."""

    def __init__(self, spec: OutputSpec, sink: Sink) -> None:
        self._spec = spec
        self._buffer = io.BufferedWriter(sink, WRITE_BYTES)
        self._stream: Any = None
        self._schema: pa.Schema | None = None
        """The schema of the open stream."""
        self._elements: list[Any] = []

    def of_series(self, block: Block) -> Block:
        """Return the rows of a Series: its name is that of its column."""
        return block

    def block(self, block: Block) -> None:
        """Write rows; raise `ReturnTypeError` for those that the format cannot hold."""
        rows, columns = block.shape
        if not columns:
            if rows:
                msg = "run() returned rows without columns: a data set cannot hold them."
                raise ReturnTypeError(msg)
            return
        self._write_elements()
        if isinstance(block, pd.DataFrame):
            for table in _tables(block):
                self._write(table)
        else:
            self._write(block)

    def array(self, array: np.ndarray[Any, Any]) -> None:
        """Write a row for each element of an array that holds no objects."""
        self._write_elements()
        self._write(_column(pd.Series(array)))

    def element(self, element: Any) -> None:
        """Write a row for an element of a generator."""
        self._elements.append(element)
        if len(self._elements) >= ELEMENTS:
            self._write_elements()

    def elements(self, elements: list[Any], _kinds: set[type]) -> None:
        """Hold elements of a list until all of them are there, since they have one type."""
        self._elements += elements

    def flush(self) -> None:
        """Write the last rows, and the end of the stream."""
        self._write_elements()
        self._end_stream()
        self._buffer.flush()

    def _write_elements(self) -> None:
        if self._elements:
            elements, self._elements = self._elements, []
            self._write(_column(pd.Series(elements, dtype="object")))

    def _write(self, table: pa.Table) -> None:
        if self._spec.format == "jsonl" and self._spec.schema is None:
            table = with_text_of_periods(table)
        if self._schema is None or not table.schema.equals(self._schema, check_metadata=False):
            self._end_stream()
            check_writable(table.schema, self._spec.format, self._spec.partition_by)
            self._schema = table.schema
            self._stream = pa.ipc.new_stream(pa.PythonFile(self._buffer, "w"), table.schema)
        check_folders(table, self._spec.partition_by)
        rows = max(1, BATCH_BYTES * table.num_rows // max(1, size_bytes(table)))
        for batch in table.to_batches(max_chunksize=rows):
            if batch.num_rows:
                self._stream.write_batch(batch)

    def _end_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream = self._schema = None


def _tables(frame: pd.DataFrame) -> Iterator[pa.Table]:
    """Yield a frame as Arrow, a large one in pieces that have the types of the whole."""
    try:
        frame = with_times(frame)
        # What is small by the number of its values is not measured: that takes longer than to write
        # a row.
        size = 0 if is_small(frame) else int(frame.memory_usage(index=False).sum())
        if size <= FRAME_BYTES:
            yield in_arrow(frame)
            return
        schema = roomy(pa.Schema.from_pandas(frame, preserve_index=False), frame)
        rows = max(1, FRAME_BYTES * len(frame) // size)
        for start in range(0, len(frame), rows):
            yield pa.Table.from_pandas(
                frame.iloc[start : start + rows], schema, preserve_index=False
            )
    except MISFITS as error:
        raise _unfit(frame, error) from error


def _column(elements: pd.Series[Any]) -> pa.Table:
    """Return elements as a table of one column."""
    return next(_tables(elements.to_frame(RESULT)))


def _unfit(frame: pd.DataFrame, error: Exception) -> ReturnTypeError:
    """Return the error for rows that Arrow cannot hold; it names column, type and row."""
    names = [*map(str, frame.columns)]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        msg = f"run() returned two columns {twice[0]!r}. A data set needs different names."
        return ReturnTypeError(msg)
    for place, name in enumerate(names):
        column = frame.iloc[:, place]
        if _fits(column):
            continue
        row = first_unfit(column)
        kind = class_name(type(column.iloc[row]))
        msg = (
            f"run() returned a column {name!r} ({column.dtype}) that a data set cannot hold, as "
            f"row {row} shows, a {kind}: {_short(error)}. Return values of one type that Arrow "
            "knows: numbers, text, bytes, dates, times, and lists and dicts of these."
        )
        return ReturnTypeError(msg)
    msg = f"run() returned rows that a data set cannot hold: {_short(error)}."
    return ReturnTypeError(msg)


def _fits(column: pd.Series[Any]) -> bool:
    try:
        pa.Array.from_pandas(as_times(column))
    except MISFITS:
        return False
    return True


def first_unfit(column: pd.Series[Any]) -> int:
    """Return the first row without which Arrow could hold all rows before it."""
    rows = range(len(column) - 1)
    return bisect_left(rows, True, key=lambda row: not _fits(column.iloc[: row + 1]))


def _short(error: Exception) -> str:
    whole = isinstance(error, UnicodeError) or not error.args  # its first argument is "utf-8"
    return str(error if whole else error.args[0]).splitlines()[0].rstrip(".")
