"""The cells of a column as text: what `DataFrame.to_csv` writes, by Arrow's kernels.

Arrow formats numbers five to ten times as fast as NumPy and pandas do. Where its text differs
(integral floats, exponents, booleans, dates without a time), it is corrected here, row by row if
rows are few.
"""

from __future__ import annotations

import csv
import functools
import io
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from daskprs.output.rows.cells import (
    Column,
    cells_of,
    date_text,
    has_few_categories,
    has_plain_categories,
    masked_floats,
)

Rows: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"
"""A mask of rows."""
TEXT = pa.large_string()
NOT_FOR_ARROW = (pa.ArrowException, OverflowError, UnicodeError)
"""Errors that Arrow raises for cells that it cannot hold."""
NUMBERS = "iufb"
"""The kinds of NumPy types whose cells need no quotes."""
WITHOUT_EXPONENT = {4: (1.1e-4, 1e6), 8: (1e-4, 1e10)}
"""Sizes of floats, by their bytes, that neither Arrow nor any NumPy writes with an exponent: Arrow
does below 1e-6 and from 1e10, NumPy below 1e-4 and from 1e16, of 4 bytes from 2.3 on from 1e6."""
EXACT = 1e15
"""Below this bound a float holds all digits of an integer."""

LONG_BYTES = 16 << 20
"""Most bytes of text of one column that are copied at once, which bounds memory."""


class LongTextError(Exception):
    """A column has too much text and must be written in shorter pieces."""


@functools.cache
def scalar(text: str) -> Any:
    """Return a text for the kernels, which mix no types."""
    return pa.scalar(text, TEXT)


def joined(*texts: Any, separator: str = "") -> Any:
    """Join texts row by row; nulls are empty."""
    return pc.binary_join_element_wise(
        *texts, scalar(separator), null_handling="replace", null_replacement=""
    )


def characters(text: Any) -> memoryview:
    """Return all characters of an array, one text after the other."""
    _, ends, data = text.buffers()
    if data is None or not len(text):
        return memoryview(b"")
    ends = np.frombuffer(ends, np.int64)  # of the whole array, of which this may be a slice
    first, last = int(ends[text.offset]), int(ends[text.offset + len(text)])
    return memoryview(data)[first:last]


LINE_BREAK = scalar("\n")


def text_of(column: Column, quotes: CellQuoting) -> Any:
    """Return the cells of a column; empty cells are null or empty text.

    Returns
    -------
    Any
        A ``large_string`` array, or None for types that only pandas writes.

    Raises
    ------
    pyarrow.ArrowException, OverflowError, UnicodeError
        `NOT_FOR_ARROW`: for cells that Arrow cannot hold.
    LongTextError
        For more than `LONG_BYTES` of text.

    """
    dtype: Any = column.dtype
    match dtype:
        case np.dtype():
            return _plain(column, quotes)
        case pd.CategoricalDtype():
            return _category(column, quotes)
        case pd.StringDtype():
            return quotes.around(_whole(pa.array(column.array, from_pandas=True)).cast(TEXT))
        case pd.Float64Dtype() | pd.Float32Dtype():
            values = masked_floats(column)
            return None if values is None else numbers(values)
        case _ if dtype.kind in "iu" and not isinstance(dtype, pd.SparseDtype):
            return _whole(pa.array(column.array)).cast(TEXT)
        case _:
            return _any(column, quotes)


def cells_for_arrow(column: Column, quotes: CellQuoting) -> Any:
    """Return a column for Arrow's CSV writer: numbers, if it writes them as pandas does.

    Other columns become text, as by `text_of`.
    """
    if isinstance(column.dtype, np.dtype):
        values = column.to_numpy()
        match values.dtype.kind:
            case "i" | "u":
                return pa.array(values)
            case "f" if values.dtype.itemsize in WITHOUT_EXPONENT:
                integral, far = _unlike(values)
                if not (integral.any() or far.any()):
                    return pa.array(values, from_pandas=True)
                return _mended(values, integral, far)
    return text_of(column, quotes)


def numbers(values: np.ndarray[Any, Any]) -> Any:
    """Return the text of numbers or booleans; NaN is null."""
    match values.dtype.kind:
        case "f" if values.dtype.itemsize in WITHOUT_EXPONENT:
            return _mended(values, *_unlike(values))
        case "f":
            return pa.array(values.astype(str).tolist(), TEXT, mask=np.isnan(values))
        case "b":
            return _booleans(pa.array(values))
        case _:
            return pa.array(values).cast(TEXT)


def has_quotes(cells: Any) -> bool:
    """Say whether an array has a text with a quotation mark."""
    return bool(cells.type == TEXT) and b'"' in bytes(characters(cells))


class CellQuoting:
    """Puts quotes around cells that need them, as `csv.writer` does.

    Parameters
    ----------
    separator
        What stands between cells.

    """

    def __init__(self, separator: str) -> None:
        # From Python 3.13 a carriage return needs them, too.
        self._marks = [mark for mark in (separator, '"', "\n", "\r") if _is_quoted(mark, separator)]

    def around(self, text: Any) -> Any:
        """Return the texts, some in quotes."""
        written = bytes(_not_long(characters(text)))
        marks = [mark for mark in self._marks if mark.encode() in written]
        if not marks:
            return text
        needed = pc.match_substring(text, marks[0])
        for mark in marks[1:]:
            needed = pc.or_(needed, pc.match_substring(text, mark))
        inside = text.filter(needed)
        if '"' in marks:
            inside = pc.replace_substring(inside, '"', '""')
        quoted = joined(scalar('"'), inside, scalar('"'))
        if len(quoted) == len(text):
            return quoted
        return pc.replace_with_mask(text, needed.fill_null(False), quoted)


def _not_long(text: memoryview) -> memoryview:
    if len(text) > LONG_BYTES:
        raise LongTextError
    return text


def _is_quoted(mark: str, separator: str) -> bool:
    line = io.StringIO()
    csv.writer(line, delimiter=separator, lineterminator="\n").writerow([f"a{mark}", "b"])
    return line.getvalue().startswith('"')


def _plain(column: Column, quotes: CellQuoting) -> Any:
    values = column.to_numpy()
    match values.dtype.kind:
        case "i" | "u" | "b" | "f":
            return numbers(values)
        case "M" if (text := date_text(values)) is not None:
            return quotes.around(text)
        case "O":
            return _objects(column, quotes)
        case _:
            return _any(column, quotes)


def _unlike(values: np.ndarray[Any, Any]) -> tuple[Rows, Rows]:
    """Return which floats Arrow writes without a decimal, and which may have an exponent."""
    lowest, highest = WITHOUT_EXPONENT[values.dtype.itemsize]
    with np.errstate(invalid="ignore"):  # NumPy would warn of a signaling NaN
        size = np.abs(values)
        integral = (values == np.trunc(values)) & (size < highest)
        far = ((size < lowest) & (size > 0)) | (size >= highest)
    return integral, far


def _mended(values: np.ndarray[Any, Any], integral: Rows, far: Rows) -> Any:
    text = pa.array(values, from_pandas=True).cast(TEXT)
    if integral.any():
        point = pc.if_else(pa.array(integral), scalar(".0"), scalar(""))
        text = pc.binary_join_element_wise(text, point, scalar(""))
    if far.any():
        text = pc.replace_with_mask(text, pa.array(far), _far_floats(values[far]))
    return text


def _far_floats(values: np.ndarray[Any, Any]) -> Any:
    # Floats without decimals, such as counts of seconds, are more often large than not.
    if values.dtype == np.float64 and (np.abs(values) < EXACT).all():
        integers = values.astype(np.int64)
        if (integers == values).all():
            return joined(pa.array(integers).cast(TEXT), scalar(".0"))
    return pa.array(values.astype(str).tolist(), TEXT)


def _booleans(values: Any) -> Any:
    return pc.if_else(values, scalar("True"), scalar("False"))


def _category(column: Column, quotes: CellQuoting) -> Any:
    if not (has_plain_categories(column) and has_few_categories(column)):
        return _any(column, quotes)
    category: Any = column.array
    text = text_of(category.categories, quotes)
    codes = pa.array(category.codes, mask=category.codes < 0)
    # The bound first, which is cheaper than the sum.
    if len(characters(text)) * len(column) > LONG_BYTES:
        lengths = pc.binary_length(text).take(codes)
        if (pc.sum(lengths).as_py() or 0) > LONG_BYTES:
            raise LongTextError
    return text.take(codes)


def _objects(column: Column, quotes: CellQuoting) -> Any:
    values = column.to_numpy()
    cells = values.tolist()
    kinds = set(map(type, cells)) - {type(None), type(pd.NA), type(pd.NaT)}
    if kinds in ({str}, {str, float}):
        if sum(len(cell) for cell in cells if type(cell) is str) > LONG_BYTES:
            raise LongTextError
        # A float is NaN, or not for Arrow.
        return quotes.around(pa.array(values, TEXT, from_pandas=True))
    if kinds == {int}:
        return pa.array(values, pa.int64(), from_pandas=True).cast(TEXT)
    if kinds == {bool}:
        return _booleans(pa.array(values, pa.bool_(), from_pandas=True))
    return _any(column, quotes)


def _any(column: Column, quotes: CellQuoting) -> Any:
    cells = cells_of(column)
    if cells is None:
        return None
    texts = [cell if cell is None or isinstance(cell, str) else str(cell) for cell in cells]
    return quotes.around(pa.array(texts, TEXT))


def _whole(array: Any) -> Any:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
