"""Frames as text: the bytes of `DataFrame.to_csv`, without its cost.

Few rows are lists for `csv.writer`, twice as fast as pandas. Many rows go through Arrow's kernels,
five to ten times as fast. Types that neither supports, or only at the speed of pandas, go to
pandas. Where Arrow's text differs (integral floats, exponents, booleans, dates without a time), it
is corrected here.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import io
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as pa_csv

if TYPE_CHECKING:
    from collections.abc import Iterable

Column: TypeAlias = "pd.Series[Any] | pd.Index[Any]"

CELLS_AT_ONCE = 100_000
"""Cells of each piece that a frame is cut into, as many as `to_csv` uses: how it writes a date
depends on the other dates in the piece."""
FEW_ROWS = 100
FEW_CELLS = 300
"""Sizes up to which lists are faster than kernels: in any frame, in one of numbers only."""
MATRIX_COLUMNS = 3
"""Fewest columns for which a frame is checked for numbers of one type."""
FEW_CATEGORIES = 100
LONG_BYTES = 16 << 20
"""Most bytes of text of one column that are copied at once, which bounds memory."""
IN_NUMBERS = '+-.\r\n\0"'
"""Separators that numbers may hold, or that `csv.writer` treats specially; letters do so, too."""
NUMBERS = "iufb"
"""The kinds of NumPy types whose cells need no quotes."""
NULLS = {type(None), type(pd.NA), type(pd.NaT)}

TEXT = pa.large_string()
NOT_FOR_ARROW = (pa.ArrowException, OverflowError, UnicodeError)
"""Errors that Arrow raises for cells that it cannot hold."""
DOUBLE_BYTES = 8
WITHOUT_EXPONENT = {4: (1.1e-4, 1e6), 8: (1e-4, 1e10)}
"""Sizes of floats, by their bytes, that neither Arrow nor any NumPy writes with an exponent: Arrow
does below 1e-6 and from 1e10, NumPy below 1e-4 and from 1e16, of 4 bytes from 2.3 on from 1e6."""
EXACT = 1e15
"""Below this bound a float holds all digits of an integer."""

UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
DAY_S = 86_400
FIRST_S, LAST_S = -30_610_224_000, 253_402_300_799
"""Seconds since 1970 of the years from 1000 to 9999; other years have more or fewer digits in Arrow
and pandas."""


class LongTextError(Exception):
    """A column has too much text and must be written in shorter pieces."""


class FrameCsv:
    """Writes frames with one separator."""

    def __init__(self, separator: str) -> None:
        self._separator = separator
        self._marks = _quoted_marks(separator)
        """Characters that put a cell in quotes; None for a separator that only pandas supports."""

    def header(self, frame: pd.DataFrame) -> str:
        """Return the header line."""
        kinds = {*map(type, frame.columns)}
        if self._marks is None or not kinds or kinds - {str, int}:
            return str(frame.iloc[:0].to_csv(**self._form()))
        line = io.StringIO()
        self._writer(line).writerow(frame.columns)
        return line.getvalue()

    def write(self, frame: pd.DataFrame, text: io.TextIOWrapper[IO[bytes]]) -> None:
        """Write the rows; raise `UnicodeEncodeError` for text that cannot be written as UTF-8."""
        rows = max(1, CELLS_AT_ONCE // max(1, frame.shape[1]))
        if len(frame) <= rows:
            self._write_piece(frame, text)
            return
        for start in range(0, len(frame), rows):
            self._write_piece(frame.iloc[start : start + rows], text)

    def _write_piece(self, piece: pd.DataFrame, text: io.TextIOWrapper[IO[bytes]]) -> None:
        # A class of its own may have a `to_csv` of its own.
        if self._marks is not None and type(piece) is pd.DataFrame and piece.size:
            try:
                if self._write_quickly(piece, text):
                    return
            except LongTextError:
                if _may_be_cut(piece):
                    half = len(piece) // 2
                    self._write_piece(piece.iloc[:half], text)
                    self._write_piece(piece.iloc[half:], text)
                    return
        piece.to_csv(text, header=False, **self._form())

    def _write_quickly(self, piece: pd.DataFrame, text: io.TextIOWrapper[IO[bytes]]) -> bool:
        """Write a piece without pandas, if possible, and return whether it was written."""
        matrix = piece.to_numpy() if _is_matrix(piece) else None
        if len(piece) <= FEW_ROWS and (matrix is None or matrix.size <= FEW_CELLS):
            rows = _rows(piece) if matrix is None else _matrix_rows(matrix)
            if rows is not None:
                self._writer(text).writerows(rows)
            return rows is not None
        try:
            lines = self._lines(piece) if matrix is None else self._matrix_lines(matrix)
        except NOT_FOR_ARROW:
            return False
        if lines is not None:
            text.flush()
            text.buffer.write(lines)
        return lines is not None

    def _writer(self, text: IO[str]) -> Any:
        return csv.writer(text, delimiter=self._separator, lineterminator="\n")

    def _form(self) -> dict[str, Any]:
        return {"sep": self._separator, "index": False, "lineterminator": "\n"}

    # ---- many rows, by Arrow's kernels ----

    def _lines(self, piece: pd.DataFrame) -> memoryview | None:
        """Return the lines of a piece; None if only pandas writes them."""
        columns = []
        for _, column in piece.items():  # noqa: PERF102 - a frame is not a dict
            cells = self._cells(column)
            if cells is None:
                return None
            columns.append(cells)
        if len(columns) > 1 and not any(map(_has_quotes, columns)):
            with contextlib.suppress(pa.ArrowInvalid):  # a carriage return, which needs no quotes
                return self._unquoted_lines(columns)
        texts = [cells.cast(TEXT) for cells in columns]
        if len(texts) == 1:
            # No line is empty.
            text = texts[0].fill_null("")
            texts[0] = pc.if_else(pc.equal(pc.binary_length(text), 0), _scalar('""'), text)
        texts[-1] = joined(texts[-1], LINE_BREAK)
        return characters(joined(*texts, separator=self._separator))

    def _unquoted_lines(self, columns: list[Any]) -> memoryview:
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

    def _matrix_lines(self, values: np.ndarray[Any, Any]) -> memoryview:
        rows, columns = values.shape
        cells = numbers(values.ravel()).cast(TEXT).fill_null("")
        ends = pa.array(np.arange(0, rows * columns + 1, columns))
        lines = pc.binary_join(pa.LargeListArray.from_arrays(ends, cells), _scalar(self._separator))
        return characters(joined(lines, LINE_BREAK))

    def _cells(self, column: Column) -> Any:
        """Return the cells of a column for Arrow's CSV writer; a null is an empty cell.

        They are numbers, if Arrow writes these as pandas does, or texts, in quotes where needed;
        None for types that only pandas writes. Raise `LongTextError` for too much text, and one of
        `NOT_FOR_ARROW` for cells that Arrow cannot hold.
        """
        dtype: Any = column.dtype
        array: Any = column.array
        match dtype:
            case np.dtype():
                return self._plain_cells(column.to_numpy())
            case pd.CategoricalDtype():
                return self._category_cells(array)
            case pd.StringDtype():
                return self._quoted(_whole(pa.array(array, from_pandas=True)).cast(TEXT))
            case pd.Float64Dtype() | pd.Float32Dtype():
                values = _masked_floats(array)
                return None if values is None else numbers(values)
            case _ if dtype.kind in "iub" and not isinstance(dtype, pd.SparseDtype):
                cells = _whole(pa.array(array))
                return _booleans(cells) if dtype.kind == "b" else cells
        return None

    def _plain_cells(self, values: np.ndarray[Any, Any]) -> Any:
        match values.dtype.kind:
            case "i" | "u" | "f" | "b":
                return numbers(values)
            case "M":
                return self._quoted(_date_text(values))
            case "O":
                return self._object_cells(values)
        return None

    def _object_cells(self, values: np.ndarray[Any, Any]) -> Any:
        cells = values.tolist()
        kinds = set(map(type, cells)) - NULLS
        if kinds == {int}:
            return pa.array(values, pa.int64(), from_pandas=True)
        if kinds == {bool}:
            return _booleans(pa.array(values, pa.bool_(), from_pandas=True))
        if kinds in ({str}, {str, float}):  # a float is NaN, or not for Arrow
            if sum(len(cell) for cell in cells if type(cell) is str) > LONG_BYTES:
                raise LongTextError
            return self._quoted(pa.array(values, TEXT, from_pandas=True))
        texts = [cell if isinstance(cell, str) else str(cell) for cell in cells]
        return self._quoted(pa.array(_with_nulls(texts, pd.isna(values)), TEXT))

    def _category_cells(self, column: Any) -> Any:
        """Return the text of categories, formatted once for all of their cells."""
        if not _has_plain_categories(column.dtype):
            return None
        if len(column.categories) > max(len(column), FEW_CATEGORIES):
            return None
        cells = self._cells(column.categories)
        if cells is None:
            return None
        text = cells.cast(TEXT)
        codes = pa.array(column.codes, mask=column.codes < 0)
        if (pc.sum(pc.binary_length(text).take(codes)).as_py() or 0) > LONG_BYTES:
            raise LongTextError
        return text.take(codes)

    def _quoted(self, text: Any) -> Any:
        """Return the texts, those in quotes that `csv.writer` puts in quotes."""
        if text is None:
            return None
        content = characters(text)
        if len(content) > LONG_BYTES:
            raise LongTextError
        written = bytes(content)
        marks = [mark for mark in self._marks or () if mark.encode() in written]
        if not marks:
            return text
        needed = pc.match_substring(text, marks[0])
        for mark in marks[1:]:
            needed = pc.or_(needed, pc.match_substring(text, mark))
        inside = text.filter(needed)
        if '"' in marks:
            inside = pc.replace_substring(inside, '"', '""')
        quoted = joined(_scalar('"'), inside, _scalar('"'))
        if len(quoted) == len(text):
            return quoted
        return pc.replace_with_mask(text, needed.fill_null(False), quoted)


def numbers(values: np.ndarray[Any, Any]) -> Any:
    """Return numbers or booleans as an array that Arrow writes as pandas does; NaN is null."""
    kind, size = values.dtype.kind, values.dtype.itemsize
    if kind == "f" and size not in WITHOUT_EXPONENT:
        return pa.array(values.astype(str).tolist(), TEXT, mask=np.isnan(values))
    cells = pa.array(values, from_pandas=True)
    if kind == "b":
        return _booleans(cells)
    return _mended(values, cells, *WITHOUT_EXPONENT[size]) if kind == "f" else cells


def joined(*texts: Any, separator: str = "") -> Any:
    """Join texts row by row; nulls are empty."""
    return pc.binary_join_element_wise(
        *texts, _scalar(separator), null_handling="replace", null_replacement=""
    )


def characters(text: Any) -> memoryview:
    """Return all characters of an array, one text after the other."""
    _, ends, data = text.buffers()
    if data is None or not len(text):
        return memoryview(b"")
    ends = np.frombuffer(ends, np.int64)  # of the whole array, of which this may be a slice
    first, last = int(ends[text.offset]), int(ends[text.offset + len(text)])
    return memoryview(data)[first:last]


@functools.cache
def _scalar(text: str) -> Any:
    """Return a text for the kernels, which mix no types."""
    return pa.scalar(text, TEXT)


LINE_BREAK = _scalar("\n")


def _mended(values: np.ndarray[Any, Any], cells: Any, lowest: float, highest: float) -> Any:
    """Return floats as numbers, or as text if Arrow writes some of them unlike pandas."""
    with np.errstate(invalid="ignore"):  # NumPy would warn of a signaling NaN
        size = np.abs(values)
        integral = (values == np.trunc(values)) & (size < highest)
        far = ((size < lowest) & (size > 0)) | (size >= highest)
    if integral.any():
        point = pc.if_else(pa.array(integral), _scalar(".0"), _scalar(""))
        cells = pc.binary_join_element_wise(cells.cast(TEXT), point, _scalar(""))
    if far.any():
        cells = pc.replace_with_mask(cells.cast(TEXT), pa.array(far), _far_floats(values[far]))
    return cells


def _far_floats(values: np.ndarray[Any, Any]) -> Any:
    # Floats without decimals, such as counts of seconds, are more often large than not.
    if values.dtype == np.float64 and (np.abs(values) < EXACT).all():
        integers = values.astype(np.int64)
        if (integers == values).all():
            return joined(pa.array(integers).cast(TEXT), _scalar(".0"))
    return pa.array(values.astype(str).tolist(), TEXT)


def _masked_floats(masked: Any) -> np.ndarray[Any, Any] | None:
    """Return floats with NaN for null, or None if a NaN is a value, which is written as NaN."""
    values: np.ndarray[Any, Any] = masked.to_numpy(masked.dtype.numpy_dtype, na_value=np.nan)
    return values if (np.isnan(values) == pd.isna(masked)).all() else None


def _has_plain_categories(dtype: Any) -> bool:
    """Say whether categories are written as in a column of their own type."""
    # Dates are written as those of a column of dates, narrow floats as wide ones.
    categories = dtype.categories.dtype
    return categories.kind in "iubO" or categories == np.float64


def _booleans(values: Any) -> Any:
    return pc.if_else(values, _scalar("True"), _scalar("False"))


def _date_text(values: np.ndarray[Any, Any]) -> Any:
    """Format ``datetime64`` in the coarsest unit that fits all; None for odd years."""
    unit, _ = np.datetime_data(values.dtype)
    per_second = UNITS[unit]
    ticks = values[~np.isnat(values)].view(np.int64)
    if (
        len(ticks)
        and not FIRST_S <= ticks.min() // per_second <= ticks.max() // per_second <= LAST_S
    ):
        return None
    if not (ticks % (DAY_S * per_second)).any():
        return pa.array(values).cast(pa.date32()).cast(TEXT)
    unit = next(
        name
        for name, per in UNITS.items()
        if per >= per_second or not (ticks % (per_second // per)).any()
    )
    return pa.array(values).cast(pa.timestamp(unit)).cast(TEXT)


def _has_quotes(cells: Any) -> bool:
    return bool(cells.type == TEXT) and b'"' in bytes(characters(cells))


def _whole(array: Any) -> Any:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


@functools.cache
def _quoted_marks(separator: str) -> tuple[str, ...] | None:
    one = len(separator) == 1 and separator.isascii()
    if not one or separator.isalnum() or separator in IN_NUMBERS:
        return None
    # From Python 3.13 a carriage return needs them, too.
    return tuple(mark for mark in (separator, '"', "\n", "\r") if _is_quoted(mark, separator))


def _is_quoted(mark: str, separator: str) -> bool:
    line = io.StringIO()
    csv.writer(line, delimiter=separator, lineterminator="\n").writerow([f"a{mark}", "b"])
    return line.getvalue().startswith('"')


def _may_be_cut(piece: pd.DataFrame) -> bool:
    """Say whether each cell is written independently of the others in its column."""
    return len(piece) > FEW_ROWS and not any(
        dtype.kind in "mM" or isinstance(dtype, pd.CategoricalDtype) for dtype in piece.dtypes
    )


def _is_matrix(frame: pd.DataFrame) -> bool:
    if frame.shape[1] < MATRIX_COLUMNS:
        return False
    types = set(frame.dtypes)
    one = types.pop()
    return not types and isinstance(one, np.dtype) and one.kind in NUMBERS


# ---- few rows, by `csv.writer` ----


def _rows(piece: pd.DataFrame) -> Iterable[Any] | None:
    """Return rows for `csv.writer`, which writes None as an empty cell; None for pandas' types."""
    columns = []
    for _, column in piece.items():  # noqa: PERF102 - a frame is not a dict
        cells = _list_of(column)
        if cells is None:
            return None
        columns.append(cells)
    return zip(*columns, strict=True)


def _matrix_rows(values: np.ndarray[Any, Any]) -> Iterable[list[Any]]:
    columns = values.shape[1]
    flat = _floats(values.ravel()) if values.dtype.kind == "f" else values.ravel().tolist()
    return (flat[start : start + columns] for start in range(0, len(flat), columns))


def _list_of(column: pd.Series[Any]) -> list[Any] | None:
    dtype: Any = column.dtype
    match dtype:
        case np.dtype(kind="f"):
            return _floats(column.to_numpy())
        case np.dtype(kind="M"):
            text = _date_text(column.to_numpy())
            return None if text is None else list(text.to_pylist())
        case pd.Float64Dtype() | pd.Float32Dtype():
            values = _masked_floats(column.array)
            return None if values is None else _floats(values)
        case np.dtype(kind="i" | "u" | "b"):
            return column.tolist()
        case pd.CategoricalDtype() if _has_plain_categories(dtype):
            cells = column.array.astype(object)
        case _ if dtype.kind in "iub" or isinstance(dtype, (np.dtypes.ObjectDType, pd.StringDtype)):
            cells = column.to_numpy(object)
        case _:
            return None
    return _with_nulls(cells.tolist(), pd.isna(cells))


def _floats(values: np.ndarray[Any, Any]) -> list[Any]:
    # `csv.writer` writes an 8-byte float as NumPy does; a 4-byte float has fewer digits.
    plain = values if values.dtype.itemsize == DOUBLE_BYTES else values.astype(str)
    return _with_nulls(plain.tolist(), np.isnan(values))


def _with_nulls(cells: list[Any], null: Any) -> list[Any]:
    for row in np.flatnonzero(null):
        cells[row] = None
    return cells
