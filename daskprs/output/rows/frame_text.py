"""Frames as text: the bytes of `DataFrame.to_csv`, without its cost.

There are three ways, by size and type: lists for a few rows, Arrow's kernels for many, and pandas
itself for types that neither supports. Measured with a key and a float: 0.7 million rows/s by
pandas, 5 by kernels.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import io
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as pa_csv

from daskprs.output.rows.cells import DATES, cells_of, matrix_rows
from daskprs.output.rows.text_cells import (
    LINE_BREAK,
    NOT_FOR_ARROW,
    NUMBERS,
    TEXT,
    CellQuoting,
    LongTextError,
    cells_for_arrow,
    characters,
    has_quotes,
    joined,
    numbers,
    scalar,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CELLS_AT_ONCE = 100_000
"""Cells of each piece that a frame is cut into, as many as `to_csv` uses: how it writes a date
depends on the other dates in the piece."""
FEW_ROWS = 100
FEW_CELLS = 300
"""Sizes up to which lists are faster than kernels: in any frame, in one of numbers only."""
MATRIX_COLUMNS = 3
"""Fewest columns for which a frame is checked for numbers of one type."""
IN_NUMBERS = '+-.\r\n\0"'
"""Separators that numbers may hold, or that `csv.writer` treats specially; letters do so, too."""


class FrameText:
    """Writes frames with one separator."""

    def __init__(self, separator: str) -> None:
        self._separator = separator
        self._quotes = _quotes(separator)

    def header(self, frame: pd.DataFrame) -> str:
        """Return the header line."""
        if self._quotes is None or {*map(type, frame.columns)} != {str}:
            return str(frame.iloc[:0].to_csv(**self._form()))
        line = io.StringIO()
        self._writer(line).writerow(frame.columns)
        return line.getvalue()

    def write(self, frame: pd.DataFrame, file: IO[bytes]) -> None:
        """Write the rows.

        Raises
        ------
        UnicodeEncodeError
            For text that cannot be written as UTF-8.

        """
        rows = max(1, CELLS_AT_ONCE // max(1, frame.shape[1]))
        if len(frame) <= rows:
            self._write_piece(frame, file)
            return
        for start in range(0, len(frame), rows):
            self._write_piece(frame.iloc[start : start + rows], file)

    def _write_piece(self, piece: pd.DataFrame, file: IO[bytes]) -> None:
        # A class of its own may have a `to_csv` of its own.
        if self._quotes is not None and type(piece) is pd.DataFrame and piece.size:
            try:
                if self._write_quickly(piece, self._quotes, file):
                    return
            except LongTextError:
                if _may_be_cut(piece):
                    half = len(piece) // 2
                    self._write_piece(piece.iloc[:half], file)
                    self._write_piece(piece.iloc[half:], file)
                    return
        with _text_of(file) as text:
            piece.to_csv(text, header=False, **self._form())

    def _write_quickly(self, piece: pd.DataFrame, quotes: CellQuoting, file: IO[bytes]) -> bool:
        """Write a piece without pandas, if possible, and return whether it was written."""
        rows: Iterable[Any] | None = None
        lines: memoryview | None = None
        if _is_matrix(piece):
            values = piece.to_numpy()
            if values.size <= FEW_CELLS:
                rows = matrix_rows(values)
            else:
                lines = self._matrix_lines(values)
        elif len(piece) <= FEW_ROWS:
            rows = _rows(piece)
        else:
            lines = self._lines(piece, quotes)
        if rows is not None:
            with _text_of(file) as text:
                self._writer(text).writerows(rows)
        elif lines is not None:
            file.write(lines)
        return rows is not None or lines is not None

    def _lines(self, piece: pd.DataFrame, quotes: CellQuoting) -> memoryview | None:
        columns = []
        try:
            for _, column in piece.items():  # noqa: PERF102 - a frame is no dict
                cells = cells_for_arrow(column, quotes)
                if cells is None:
                    return None
                columns.append(cells)
        except NOT_FOR_ARROW:
            return None
        if len(columns) > 1 and not any(map(has_quotes, columns)):
            with contextlib.suppress(pa.ArrowInvalid):  # a carriage return, which needs no quotes
                return self._written(columns)
        texts = [cells.cast(TEXT) for cells in columns]
        if len(texts) == 1:
            # No line is empty.
            text = texts[0].fill_null("")
            texts[0] = pc.if_else(pc.equal(pc.binary_length(text), 0), scalar('""'), text)
        texts[-1] = joined(texts[-1], LINE_BREAK)
        return characters(joined(*texts, separator=self._separator))

    def _written(self, columns: list[Any]) -> memoryview:
        """Return cells, none of which has or needs quotes, as written by Arrow's own writer.

        This takes a fifth to a half less time than joining texts, since numbers never become texts
        of their own.
        """
        names = [str(number) for number in range(len(columns))]
        sink = pa.BufferOutputStream()
        form = pa_csv.WriteOptions(
            include_header=False, delimiter=self._separator, quoting_style="none"
        )
        pa_csv.write_csv(pa.RecordBatch.from_arrays(columns, names), sink, form)
        return memoryview(sink.getvalue())

    def _matrix_lines(self, values: np.ndarray[Any, Any]) -> memoryview | None:
        rows, columns = values.shape
        try:
            cells = numbers(values.ravel()).fill_null("")
        except NOT_FOR_ARROW:
            return None
        ends = pa.array(np.arange(0, rows * columns + 1, columns))
        lines = pc.binary_join(pa.LargeListArray.from_arrays(ends, cells), scalar(self._separator))
        return characters(joined(lines, LINE_BREAK))

    def _writer(self, text: IO[str]) -> Any:
        return csv.writer(text, delimiter=self._separator, lineterminator="\n")

    def _form(self) -> dict[str, Any]:
        return {"sep": self._separator, "index": False, "lineterminator": "\n"}


@functools.cache
def _quotes(separator: str) -> CellQuoting | None:
    """Return the quoting rules for a separator, or None for one that only pandas supports."""
    one = len(separator) == 1 and separator.isascii()
    simple = one and not separator.isalnum() and separator not in IN_NUMBERS
    return CellQuoting(separator) if simple else None


@contextlib.contextmanager
def _text_of(file: IO[bytes]) -> Iterator[IO[str]]:
    """Yield a text file that writes to a binary file, in pieces of a few kilobytes."""
    text = io.TextIOWrapper(file, "utf-8", newline="")
    try:
        yield text
        text.flush()
    finally:
        text.detach()


def _rows(piece: pd.DataFrame) -> Iterable[Any] | None:
    columns = []
    for _, column in piece.items():  # noqa: PERF102 - a frame is no dict
        cells = cells_of(column)
        if cells is None:
            return None
        columns.append(cells)
    return zip(*columns, strict=True)


def _may_be_cut(piece: pd.DataFrame) -> bool:
    """Say whether each cell is written independently of the others in its column."""
    return len(piece) > FEW_ROWS and not any(
        dtype.kind in DATES or isinstance(dtype, pd.CategoricalDtype) for dtype in piece.dtypes
    )


def _is_matrix(frame: pd.DataFrame) -> bool:
    if frame.shape[1] < MATRIX_COLUMNS:
        return False
    types = set(frame.dtypes)
    one = types.pop()
    return not types and isinstance(one, np.dtype) and one.kind in NUMBERS
