"""Rows as lines of text, as they stand in the append_row file."""

from __future__ import annotations

import contextlib
import io
import sys
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa

from daskprs._output.header_lines import (
    OTHER_COLUMNS,
    SERIES,
    SERIES_LINE,
    are_alike,
    different_columns,
)
from daskprs._output.rows.blocks import frames_of
from daskprs._output.rows.frame_csv import (
    LINE_BREAK,
    NOT_FOR_ARROW,
    NUMBERS,
    TEXT,
    FrameCsv,
    characters,
    joined,
    numbers,
)
from daskprs._output.rows.result_tables import RESULT, column_of
from daskprs.errors import ReturnTypeError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from daskprs._output.rows.blocks import Block
    from daskprs._output.spec import OutputSpec
    from daskprs._output.spool import Sink

FEW_NUMBERS = 50
"""Most numbers that are formatted faster one by one than by kernels."""
ROWS_AT_ONCE = 10_000
"""Elements that become rows of a table at once."""
PLAIN = frozenset({str, int, float, bool, type(None)})
PLAIN_OF_NUMPY = (np.number, np.bool_, np.str_)
"""Types that hold no array, so that NumPy's print options do not affect them."""


class TextRows:
    """Writes frames as `DataFrame.to_csv` does, and other elements as a line each."""

    def __init__(self, spec: OutputSpec, sink: Sink) -> None:
        self._headers: list[str] = []
        """The header line of the frames. If frames with other columns are allowed, the header line
        of the first such frame is the second element."""
        self._column: list[Any] = []
        """Elements that become the column of a table."""
        self._spec = spec
        self._frames = FrameCsv(spec.separator)
        self._text = io.TextIOWrapper(cast("IO[bytes]", sink), "utf-8", newline="")
        self._columns: pd.Index[Any] | None = None

    @property
    def header(self) -> str | None:
        """The header line of the frames; None without frames that have rows."""
        return OTHER_COLUMNS.join(self._headers) if self._headers else None

    def of_series(self, block: Block) -> Block:
        """Return the rows of a Series: in lines without a header, its name does not matter."""
        if self._spec.header:
            return block
        if isinstance(block, pa.Table):
            return block.rename_columns([SERIES])
        return block.set_axis([SERIES], axis=1)

    def element(self, element: Any) -> None:
        """Write a line: ``str(element)``, arrays in it in full."""
        if self._spec.tabular:
            self.elements([element], {type(element)})
            return
        kind = type(element)
        line = str(element) if kind in PLAIN or _is_plain(kind) else _in_full([element])[0]
        self._write(f"{line}\n")

    def elements(self, elements: list[Any], kinds: set[type]) -> None:
        """Write a line for each element, all of which are of one of these types."""
        if self._spec.tabular:
            self._column += elements
            if len(self._column) >= ROWS_AT_ONCE:
                self._write_column()
            return
        plain = kinds <= PLAIN or all(kind in PLAIN or _is_plain(kind) for kind in kinds)
        lines = [*map(str, elements)] if plain else _in_full(elements)
        self._write("\n".join([*lines, ""]))

    def array(self, array: np.ndarray[Any, Any]) -> None:
        """Write a line for each element of an array that holds no objects."""
        if self._spec.tabular:
            self._write_column()
            self._frame(pd.DataFrame({RESULT: array}))
            return
        if len(array) > FEW_NUMBERS and array.dtype.kind in NUMBERS:
            with contextlib.suppress(*NOT_FOR_ARROW):
                lines = joined(numbers(array).cast(TEXT).fill_null("nan"), LINE_BREAK)
                self._text.flush()
                self._text.buffer.write(characters(lines))
                return
        self.elements([*array], {array.dtype.type})

    def block(self, block: Block) -> None:
        """Write rows; raise `ReturnTypeError` if their columns differ from those before."""
        self._write_column()
        for frame in frames_of(block):
            self._frame(frame)

    def _write_column(self) -> None:
        """Write the elements that a table has as a column."""
        if self._column:
            elements, self._column = self._column, []
            with _arrays_in_full():
                self._frame(column_of(elements))

    def _frame(self, frame: pd.DataFrame) -> None:
        if self._spec.tabular:
            frame = _with_times_in_full(frame)
        if len(frame):
            self._note_columns(frame)
        try:
            self._frames.write(frame, self._text)
        except UnicodeEncodeError as error:
            raise _not_utf8(error) from error

    def flush(self) -> None:
        """Write the last lines."""
        self._write_column()
        self._text.flush()

    def _note_columns(self, frame: pd.DataFrame) -> None:
        """Note the columns of a frame, and check that they are those of the frames before."""
        if self._columns is not None and self._columns.equals(frame.columns):
            return
        self._columns = frame.columns
        header = self._frames.header(frame)
        try:
            header.encode()
        except UnicodeEncodeError as error:
            if self._spec.header:
                raise _not_utf8(error) from error
            header = header.encode("utf-8", "backslashreplace").decode()
        if header in self._headers:
            return
        if self._headers and are_alike(self._headers[0], header, self._spec.separator):
            if self._headers[0] == SERIES_LINE:  # a frame has columns for all
                self._headers[0] = header
            return
        if self._headers and not self._spec.mixed_columns:
            raise ReturnTypeError(different_columns("run()", self._headers[0], header))
        self._headers = [*self._headers[:1], header]

    def _write(self, lines: str) -> None:
        try:
            self._text.write(lines)
        except UnicodeEncodeError as error:
            raise _not_utf8(error) from error


def _with_times_in_full(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame whose times are text in the one form of their type.

    pandas leaves out the part that is zero in all rows of a frame. Of mini-batches, some would have
    dates and some times, and `read_csv` would take such a column for text.
    """
    found = frame
    for place, dtype in enumerate(frame.dtypes):
        kind = getattr(dtype, "kind", "")
        if kind not in ("M", "m"):
            continue
        column = frame.iloc[:, place]
        if kind == "M":
            text = pa.array(column, from_pandas=True).cast(pa.string()).to_pandas()
            text.index = column.index
        else:
            text = column.map(str, na_action="ignore").astype(object)
        found = frame.copy(deep=False) if found is frame else found
        found.isetitem(place, text)
    return found


def _is_plain(kind: type) -> bool:
    return issubclass(kind, PLAIN_OF_NUMPY)


def _in_full(elements: list[Any]) -> list[str]:
    with _arrays_in_full():
        return [*map(str, elements)]


def _arrays_in_full() -> AbstractContextManager[Any]:
    return np.printoptions(threshold=sys.maxsize, linewidth=sys.maxsize)


def _not_utf8(error: UnicodeEncodeError) -> ReturnTypeError:
    near = error.object[max(0, error.start - 20) : error.end + 20]
    return ReturnTypeError(
        f"run() returned text that cannot be written as UTF-8: {error.reason}, in {near!r}."
    )
