"""Rows as lines of text, as they stand in the append_row file."""

from __future__ import annotations

import io
import sys
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np

from daskprs.errors import ReturnTypeError
from daskprs.output.sink import Sink

if TYPE_CHECKING:
    import pandas as pd

    from daskprs.core.outcomes import Extent
    from daskprs.output.spec import OutputSpec

WRITE_CHARACTERS = 1 << 18
"""Lines are encoded and written in pieces of about this size."""
PLAIN = (str, int, float, bool)


class TextRows:
    """Writes frames as `DataFrame.to_csv` does, and other elements as a line each."""

    def __init__(self, spec: OutputSpec, file: str) -> None:
        self.header: str | None = None
        """The header line of the frames, when one is asked for."""
        self._spec = spec
        self._sink = Sink(file)
        self._lines: list[str] = []
        self._characters = 0
        self._columns: pd.Index[Any] | None = None

    def element(self, element: Any) -> None:
        """Write a line: ``str(element)``, arrays in it in full."""
        line = str(element) if type(element) in PLAIN else _in_full(element)
        self._lines.append(line)
        self._characters += len(line)
        if self._characters > WRITE_CHARACTERS:
            self._write_lines()

    def frame(self, frame: pd.DataFrame) -> None:
        """Write a frame. pandas cuts it into pieces itself: how it writes a date depends on them.

        Raises
        ------
        ReturnTypeError
            When its header is wanted, and is not that of the frames before.

        """
        self._write_lines()
        if self._spec.header:
            self._check_header(frame)
        text = io.TextIOWrapper(cast("IO[bytes]", self._sink), "utf-8", newline="")
        try:
            frame.to_csv(text, header=False, **self._form())
            text.flush()
        except UnicodeEncodeError as error:
            raise _not_utf8(error) from error
        finally:
            text.detach()

    def finish(self) -> tuple[Extent, bytes]:
        """Return what was written."""
        self._write_lines()
        return self._sink.finish()

    def discard(self) -> None:
        """Forget what was written, after a failure."""
        self._sink.discard()

    def _form(self) -> dict[str, Any]:
        return {"sep": self._spec.separator, "index": False, "lineterminator": "\n"}

    def _check_header(self, frame: pd.DataFrame) -> None:
        if self._columns is not None and self._columns.equals(frame.columns):
            return
        header = frame.iloc[:0].to_csv(**self._form())
        if self.header not in (None, header):
            msg = (
                f"run() returned frames with different headers: {str(self.header).rstrip()!r} and "
                f"{header.rstrip()!r}. Return the same columns, or leave "
                "append_row_dataframe_header off."
            )
            raise ReturnTypeError(msg)
        self.header, self._columns = header, frame.columns

    def _write_lines(self) -> None:
        if self._lines:
            self._lines.append("")
            try:
                self._sink.write("\n".join(self._lines).encode())
            except UnicodeEncodeError as error:
                raise _not_utf8(error) from error
            self._lines.clear()
            self._characters = 0


def _in_full(element: Any) -> str:
    with np.printoptions(threshold=sys.maxsize, linewidth=sys.maxsize):
        return str(element)


def _not_utf8(error: UnicodeEncodeError) -> ReturnTypeError:
    near = error.object[max(0, error.start - 20) : error.end + 20]
    return ReturnTypeError(
        f"run() returned text that cannot be written as UTF-8: {error.reason}, in {near!r}."
    )
