"""From what `run` returned to rows: lines of text, and rows with their types.

Runs in the agent, so that formatting is parallel. What `run` may return: a DataFrame, a Series, a
list, a tuple, a NumPy array, an Arrow table or record batch, and a generator. Frames are blocks
of rows; other elements are one line each, ``str(element)``. Large results pass in pieces.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from daskprs.errors import ReturnTypeError
from daskprs.output.sink import Sink
from daskprs.output.typed_rows import encode_elements, encode_frame

if TYPE_CHECKING:
    from daskprs.core.outcomes import Extent
    from daskprs.output.spec import OutputSpec

ROWS_AT_ONCE = 10_000
"""Frames are written in pieces of so many rows: a piece is some megabytes at most."""
ELEMENTS_AT_ONCE = 1_000
REFUSED = (str, bytes, bytearray, memoryview, dict, set, frozenset)
ALLOWED = (
    "a DataFrame, a Series, a list, a tuple, a NumPy array, an Arrow table, or a generator of "
    "these or of lines"
)


class Rows(NamedTuple):
    """What an attempt made."""

    succeeded: int
    text: Extent | None
    typed: Extent | None
    header: str | None
    payload: bytes
    """Text, then typed, as far as they are not in files."""


def format_result(result: Any, spec: OutputSpec, prefix: str) -> Rows:
    """Format what `run` returned.

    Parameters
    ----------
    result
        What it returned; not None.
    spec
        Which forms are wanted.
    prefix
        Path prefix of the files that large results go to.

    Raises
    ------
    ReturnTypeError
        For what cannot be rows. Trying again would not mend it.

    """
    writer = _Writer(spec, prefix)
    try:
        writer.take(result)
    except BaseException:
        writer.discard()
        raise
    return writer.close()


class _Writer:
    """Writes one result to its sinks."""

    def __init__(self, spec: OutputSpec, prefix: str) -> None:
        self._spec = spec
        self._text = Sink(f"{prefix}.text") if spec.text else None
        self._typed = Sink(f"{prefix}.typed") if spec.typed else None
        self._succeeded = 0
        self._header: str | None = None

    def take(self, result: Any) -> None:
        frame = _as_frame(result)
        if frame is not None:
            self._frame(frame)
        elif isinstance(result, np.ndarray):
            self._array(result)
        elif isinstance(result, (list, tuple)):
            for start in range(0, len(result), ELEMENTS_AT_ONCE):
                self._elements(list(result[start : start + ELEMENTS_AT_ONCE]))
        elif isinstance(result, Iterator) and not isinstance(result, io.IOBase):
            self._iterate(result)
        else:
            msg = f"run() returned a {type(result).__name__}. Return {ALLOWED}."
            raise ReturnTypeError(msg)

    def close(self) -> Rows:
        text, text_bytes = self._text.close() if self._text else (None, b"")
        typed, typed_bytes = self._typed.close() if self._typed else (None, b"")
        return Rows(self._succeeded, text, typed, self._header, text_bytes + typed_bytes)

    def discard(self) -> None:
        for sink in (self._text, self._typed):
            if sink is not None:
                sink.discard()

    def _iterate(self, result: Iterator[Any]) -> None:
        """Write a generator's frames as blocks, and its other elements as lines."""
        elements: list[Any] = []
        size = 0
        for element in result:
            frame = _as_frame(element)
            if frame is None:
                elements.append(element)
                size += len(element) if isinstance(element, str) else 100
            if elements and (frame is not None or size > 1 << 20):
                self._elements(elements)
                elements, size = [], 0
            if frame is not None:
                self._frame(frame)
        self._elements(elements)

    def _array(self, array: np.ndarray[Any, Any]) -> None:
        match array.ndim:
            case 1:
                for start in range(0, len(array), ELEMENTS_AT_ONCE):
                    self._elements(list(array[start : start + ELEMENTS_AT_ONCE]))
            case 2:
                self._frame(pd.DataFrame(array))
            case _:
                msg = (
                    f"run() returned an array of {array.ndim} dimensions. Return one of 1 (a line "
                    "for each element) or 2 (rows and columns)."
                )
                raise ReturnTypeError(msg)

    def _frame(self, frame: pd.DataFrame) -> None:
        self._succeeded += len(frame)
        if self._text is not None:
            if self._spec.header and self._header is None:
                self._header = frame.iloc[:0].to_csv(
                    sep=self._spec.separator, index=False, lineterminator="\n"
                )
            # pandas cuts the frame into pieces itself: how it writes a date depends on them.
            frame.to_csv(
                _Utf8(self._text),
                sep=self._spec.separator,
                header=False,
                index=False,
                lineterminator="\n",
            )
        if self._typed is not None:
            for start in range(0, max(1, len(frame)), ROWS_AT_ONCE):
                self._typed.write(encode_frame(frame.iloc[start : start + ROWS_AT_ONCE]))

    def _elements(self, elements: list[Any]) -> None:
        if not elements:
            return
        self._succeeded += len(elements)
        lines = [_line(element) for element in elements]
        if self._text is not None:
            self._text.write("".join(lines).encode())
        if self._typed is not None:
            self._typed.write(encode_elements(elements))


def _as_frame(result: Any) -> pd.DataFrame | None:
    match result:
        case pd.DataFrame():
            return result
        case pd.Series():
            return result.to_frame()
        case pa.Table() | pa.RecordBatch():
            frame: pd.DataFrame = result.to_pandas()
            return frame
    return None


class _Utf8(io.TextIOBase):
    """The text file that pandas writes to; it encodes, and hands on."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, text: str) -> int:
        self._sink.write(text.encode())
        return len(text)


def _line(element: Any) -> str:
    if isinstance(element, np.ndarray):
        with np.printoptions(threshold=_ENDLESS, linewidth=_ENDLESS):
            return f"{element}\n"
    if isinstance(element, (pd.DataFrame, pd.Series, pa.Table, pa.RecordBatch)):
        msg = (
            f"run() returned a list with a {type(element).__name__} in it. Put frames together "
            "with pandas.concat, or yield them one after the other."
        )
        raise ReturnTypeError(msg)
    return f"{element}\n"


_ENDLESS = 2**31 - 1
