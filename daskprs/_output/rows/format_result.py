"""Turn what `run` returned into rows: lines of text, and rows with their types.

Runs in the agent, so that formatting is parallel. What `run` may return: a DataFrame or Series of
pandas or polars, a list, a tuple, a NumPy array, a dict of such arrays, an Arrow table, record
batch or stream, and a generator. Frames are blocks of rows; other elements are one line each.
Everything passes in pieces: the memory used beside the result itself does not grow with it.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pandas as pd
import pyarrow as pa

from daskprs._arrow.arrow_pandas import with_null_types
from daskprs._output.rows.arrow_rows import ArrowRows
from daskprs._output.rows.blocks import (
    apart,
    blocks_of,
    has_index,
    is_block,
    is_series,
    not_rows,
)
from daskprs._output.rows.given_schema import ERROR, GivenSchema, framed
from daskprs._output.rows.result_tables import RESULT, column_of, with_mask
from daskprs._output.rows.text_rows import TextRows
from daskprs._output.rows.typed_rows import TypedRows
from daskprs._output.spool import Sink
from daskprs.errors import ReturnTypeError, class_name

if TYPE_CHECKING:
    from daskprs._core.outcomes import Extent
    from daskprs._core.pieces import Place
    from daskprs._output.rows.blocks import Block
    from daskprs._output.spec import OutputSpec
    from daskprs._output.spool import AgentSpool

NUMBERS_AT_ONCE = 1 << 16
ELEMENTS_AT_ONCE = 100
"""Elements of a list that become lines at once; few, since each may be long."""


class FormattedRows(NamedTuple):
    """The formatted rows of one attempt."""

    succeeded: int
    text: Extent | None
    typed: Extent | None
    header: str | None
    payload: bytes
    """Bytes of the text rows, then of the typed ones; empty if they are in a spool."""


class RowWriter:
    """Writes what calls of `run` returned for one mini-batch in each of the wanted forms.

    The rows go into the spool, or into bytes without one. As a context it drops the rows if
    anything is raised: a generator may raise anything.
    """

    def __init__(
        self, spec: OutputSpec, spool: AgentSpool | None = None, mini_batch: int = 0
    ) -> None:
        self._sinks = lines, values = (
            (Sink(), Sink())
            if spool is None
            else (Sink(spool.text, spool.from_bytes), Sink(spool.typed, spool.from_bytes))
        )
        self._is_dataset = spec.is_dataset
        self._errors = spec.errors
        form = ArrowRows if spec.is_dataset else TextRows
        self._text = form(spec, lines) if spec.text else None
        self._typed = TypedRows(values, spec.key) if spec.typed else None
        self._forms = [form for form in (self._text, self._typed) if form is not None]
        self._given = None if spec.schema is None else GivenSchema(spec.schema, mini_batch)
        self._succeeded = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.discard()

    def take(self, result: Any, first_row: int = 0) -> None:
        """Write a result; its rows are numbered from `first_row` on in the mini-batch.

        Raise `ReturnTypeError` for a value that cannot be rows (a retry would not help), and
        `UnwritableError` when rows cannot be put into the spool.
        """
        if self._typed is not None:
            self._typed.begin_at(first_row)
        match result:
            case _ if is_block(type(result)) and not isinstance(result, Iterator):
                self._block(result, has_index=has_index(result))
            case dict():
                self._block(of_arrays(result), has_index=False)
            case np.ndarray():
                self._array(result)
            case list() | tuple():
                self._elements(result)
            case io.IOBase():
                raise not_rows(result)
            case Iterator():
                self._pieces(result)
            case _:
                raise not_rows(result)

    def place(self) -> Place:
        """Return where the next rows will stand among those of the mini-batch.

        Streams for a data set go on, since rows are found in them by their number.
        """
        for form in (self._typed, *([] if self._is_dataset else [self._text])):
            if form is not None:
                form.flush()
        lines, values = self._sinks
        return (0 if self._is_dataset else lines.length), values.length, self._succeeded

    def finish(self) -> FormattedRows:
        """Return the rows; nothing can be written after them."""
        for form in self._forms:
            form.flush()
        if any(sink.is_aside for sink in self._sinks):  # all of it is, or nothing
            for sink in self._sinks:
                sink.put_aside()
        (text, lines), (typed, values) = (sink.finish() for sink in self._sinks)
        return FormattedRows(
            self._succeeded,
            text if self._text else None,
            typed if self._typed else None,
            self._text.header if self._text else None,
            lines + values,
        )

    def discard(self) -> None:
        """Drop the rows."""
        for sink in self._sinks:
            sink.discard()

    def _block(self, block: Any, *, has_index: bool) -> None:
        for one in blocks_of(block):
            self._succeeded += len(one)
            if self._given is not None:
                self._in_schema(one, self._given, has_index=has_index)
                continue
            rows, index = apart(one) if isinstance(one, pa.Table) else (one, None)
            if self._text is not None:
                lines = self._text.of_series(rows) if is_series(block) else rows
                self._text.block(lines)
            if self._typed is None:
                continue
            if isinstance(rows, pa.Table):
                self._typed.table(rows, index if has_index else None)
            else:
                self._typed.frame(rows, has_index=has_index)

    def _in_schema(self, block: Block, given: GivenSchema, *, has_index: bool) -> None:
        """Write rows in the schema that the caller gives; a frame keeps its index."""
        index = None
        if isinstance(block, pa.Table):
            block, index = apart(block)
        table = given.table(block)
        if self._errors:
            table = table.cast(with_null_types(table.schema, texts=[ERROR]))
        if self._text is not None:
            self._text.block(table)
        if self._typed is None:
            return
        if isinstance(block, pd.DataFrame):
            self._typed.frame(framed(table, block.index), has_index=has_index)
        else:
            self._typed.table(table, index if has_index else None)

    def _pieces(self, pieces: Iterator[Any]) -> None:
        """Write what a generator yields; with a schema, some elements at a time."""
        for are_blocks, some in itertools.groupby(pieces, lambda piece: is_block(type(piece))):
            if are_blocks:
                for piece in some:
                    self._block(piece, has_index=has_index(piece))
            elif self._given is not None:
                self._elements(some)
            else:
                for element in some:
                    self._element(element)

    def _array(self, array: np.ndarray[Any, Any]) -> None:
        match array.ndim:
            case 1 if _is_plain(array):
                self._numbers(array)
            case 1:
                self._elements(array)
            case 2:
                self._block(pd.DataFrame(array), has_index=False)
            case _:
                msg = (
                    f"run() returned an array of {array.ndim} dimensions. Return one of 1 (a line "
                    "for each element) or 2 (rows and columns)."
                )
                raise ReturnTypeError(msg)

    def _numbers(self, array: np.ndarray[Any, Any]) -> None:
        """Write a line for each number; in the typed form they stay an array."""
        if self._given is not None:
            self._block(pd.DataFrame({RESULT: array}), has_index=False)
            return
        self._succeeded += len(array)
        for start in range(0, len(array), NUMBERS_AT_ONCE):
            for form in self._forms:
                form.array(array[start : start + NUMBERS_AT_ONCE])

    def _elements(self, elements: Iterable[Any]) -> None:
        """Write a line for each element, many at once: their types decide how."""
        rest = iter(elements)
        while some := [*itertools.islice(rest, ELEMENTS_AT_ONCE)]:
            kinds = {*map(type, some)}
            for kind in kinds:
                if is_block(kind):
                    msg = (
                        f"run() returned a list with a {class_name(kind)} in it. Put frames "
                        "together with pandas.concat, or yield them one after the other."
                    )
                    raise ReturnTypeError(msg)
            if self._given is not None:
                self._block(column_of(some), has_index=False)
                continue
            self._succeeded += len(some)
            for form in self._forms:
                form.elements(some, kinds)

    def _element(self, element: Any) -> None:
        self._succeeded += 1
        for form in self._forms:
            form.element(element)


def of_arrays(result: dict[Any, Any]) -> pd.DataFrame:
    """Return a dict of arrays, one for each column, as a frame."""
    if not result or not all(isinstance(one, np.ndarray) and one.ndim for one in result.values()):
        raise not_rows(result)
    try:
        columns = {
            name: with_mask(one) if one.ndim == 1 else list(one) for name, one in result.items()
        }
        return pd.DataFrame(columns)
    except ValueError as error:
        counts = ", ".join(f"{name!r}: {len(one)}" for name, one in result.items())
        msg = f"run() returned arrays of different lengths ({counts}). Each has to have all rows."
        raise ReturnTypeError(msg) from error


def _is_plain(array: np.ndarray[Any, Any]) -> bool:
    return type(array) is np.ndarray and array.dtype.kind not in "OV"
