"""Rows as lines of text, as they stand in the append_row file."""

from __future__ import annotations

import sys
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np

from daskprs.errors import ReturnTypeError
from daskprs.output.rows.frame_csv import (
    LINE_BREAK,
    NOT_FOR_ARROW,
    NUMBERS,
    TEXT,
    FrameCsv,
    characters,
    joined,
    numbers,
)

if TYPE_CHECKING:
    import pandas as pd

    from daskprs.output.spec import OutputSpec
    from daskprs.output.spool import Sink

WRITE_CHARACTERS = 1 << 18
"""Lines are encoded and written in pieces of about this size."""
FEW_NUMBERS = 50
"""Most numbers that are formatted faster one by one than by kernels."""
PLAIN = frozenset({str, int, float, bool, type(None)})
PLAIN_OF_NUMPY = (np.number, np.bool_, np.str_)
"""Types that hold no array, so that NumPy's print options do not affect them."""


class TextRows:
    """Writes frames as `DataFrame.to_csv` does, and other elements as a line each."""

    def __init__(self, spec: OutputSpec, sink: Sink) -> None:
        self.header: str | None = None
        """The header line of the frames, if one is wanted."""
        self._wants_header = spec.header
        self._frames = FrameCsv(spec.separator)
        self._sink = sink
        self._lines: list[str] = []
        self._characters = 0
        self._columns: pd.Index[Any] | None = None

    def element(self, element: Any) -> None:
        """Write a line: ``str(element)``, arrays in it in full."""
        kind = type(element)
        line = str(element) if kind in PLAIN or _is_plain(kind) else _in_full([element])[0]
        self._lines.append(line)
        self._characters += len(line)
        if self._characters > WRITE_CHARACTERS:
            self._write_lines()

    def elements(self, elements: list[Any], kinds: set[type]) -> None:
        """Write a line for each element, all of which are of one of these types."""
        plain = kinds <= PLAIN or all(kind in PLAIN or _is_plain(kind) for kind in kinds)
        self._add([*map(str, elements)] if plain else _in_full(elements))

    def numbers(self, array: np.ndarray[Any, Any]) -> None:
        """Write a line for each element of an array that holds no objects."""
        if len(array) > FEW_NUMBERS and array.dtype.kind in NUMBERS:
            try:
                text = joined(numbers(array).cast(TEXT).fill_null("nan"), LINE_BREAK)
            except NOT_FOR_ARROW:
                pass
            else:
                self._write_lines()
                self._sink.write(characters(text))
                return
        self._add([*map(str, array)])

    def frame(self, frame: pd.DataFrame) -> None:
        """Write a frame; raise `ReturnTypeError` if its header differs from the one before."""
        self._write_lines()
        if self._wants_header:
            self._check_header(frame)
        try:
            self._frames.write(frame, cast("IO[bytes]", self._sink))
        except UnicodeEncodeError as error:
            raise _not_utf8(error) from error

    def flush(self) -> None:
        """Write the last lines."""
        self._write_lines()

    def _check_header(self, frame: pd.DataFrame) -> None:
        if self._columns is not None and self._columns.equals(frame.columns):
            return
        header = self._frames.header(frame)
        if self.header not in (None, header):
            msg = (
                f"run() returned frames with different headers: {str(self.header).rstrip()!r} and "
                f"{header.rstrip()!r}. Return the same columns, or leave "
                "append_row_dataframe_header off."
            )
            raise ReturnTypeError(msg)
        self.header, self._columns = header, frame.columns

    def _add(self, lines: list[str]) -> None:
        self._lines += lines
        self._characters += sum(map(len, lines))
        if self._characters > WRITE_CHARACTERS:
            self._write_lines()

    def _write_lines(self) -> None:
        if self._lines:
            self._lines.append("")
            try:
                self._sink.write("\n".join(self._lines).encode())
            except UnicodeEncodeError as error:
                raise _not_utf8(error) from error
            self._lines.clear()
            self._characters = 0


def _is_plain(kind: type) -> bool:
    return issubclass(kind, PLAIN_OF_NUMPY)


def _in_full(elements: list[Any]) -> list[str]:
    with np.printoptions(threshold=sys.maxsize, linewidth=sys.maxsize):
        return [*map(str, elements)]


def _not_utf8(error: UnicodeEncodeError) -> ReturnTypeError:
    near = error.object[max(0, error.start - 20) : error.end + 20]
    return ReturnTypeError(
        f"run() returned text that cannot be written as UTF-8: {error.reason}, in {near!r}."
    )
