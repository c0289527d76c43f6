"""Rows of nulls in the place of bad rows, and the column `_error`, for `on_error="null"`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from daskprs._arrow.arrow_pandas import with_null_types
from daskprs._output.rows.blocks import apart, blocks_of, is_block, not_rows
from daskprs._output.rows.format_result import ELEMENTS_AT_ONCE, of_arrays
from daskprs._output.rows.given_schema import ERROR, schema_of
from daskprs._output.rows.result_tables import RESULT, column_of
from daskprs.errors import ReturnTypeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from daskprs._core.pieces import FailedItems
    from daskprs._output.rows.blocks import Block
    from daskprs._output.rows.format_result import RowWriter

NULLABLE = {"b": "boolean", "i": "Int", "u": "UInt"}
"""Types of pandas that hold nulls, by the kind of NumPy's types that hold none."""
NAMES = (str, Number, np.bool_)
"""Types of the names of columns that are the same as text in each output."""


class NullRows:
    """Writes the rows of one attempt with the column `_error`.

    Integers and booleans have types of pandas that hold nulls, whether any row has failed or not:
    else the types of a result would depend on which rows of which mini-batches have failed.

    What `run` returned says which columns there are, or else the schema that the caller gives, as
    text, or what is known by then of others. So rows of nulls wait for the first rows, and are left
    out if none come: no file can hold rows of other columns than all others have. The columns of
    the input that are `included` stand before those of `run`.
    """

    def __init__(
        self,
        included: Sequence[str] = (),
        schema: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> None:
        self.count = 0
        """Number of rows of nulls."""
        self.left_out: list[FailedItems] = []
        """The items that have failed, with the places of their rows."""
        self._included = frozenset(included)
        self._schema = schema
        self._known = columns
        self._has_rows = False
        """Whether `run` has returned any row."""
        self._columns: Block | None = None
        self._waiting: list[tuple[FailedItems, Callable[[Any], Any]]] = []
        """The failed items whose rows wait, with what adds their included columns."""

    def write(self, writer: RowWriter, result: Any, first_row: int) -> None:
        """Write what `run` returned, the included columns among it."""
        for block in map(_with_null_types, _blocks(result)):
            self._has_rows |= len(block) > 0
            if self._columns is None:
                _check_names(block)
                self._columns = block[:0]
                self._write_waiting(writer)
            writer.take(_with_errors(block, [None] * len(block)), first_row)

    def leave_out(
        self, writer: RowWriter, items: FailedItems, beside: Callable[[Any], Any]
    ) -> None:
        """Write rows of nulls for items that have failed; `beside` adds their included columns."""
        self._waiting.append((items, beside))
        if self._columns is not None:
            self._write_waiting(writer)

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The names of the columns of the rows that `run` returned; None where there are none."""
        if self._columns is None or not self._has_rows:
            return None
        is_table = isinstance(self._columns, pa.Table)
        names = apart(self._columns)[0].column_names if is_table else [*self._columns.columns]
        return tuple(str(name) for name in names if name not in self._included)

    def finish(self, writer: RowWriter) -> None:
        """Write what still waits, where anything says the columns that `run` did not return."""
        if self._columns is None and self._schema is not None:
            self._columns = schema_of(self._schema).empty_table().drop_columns([ERROR])
        elif self._columns is None and self._known is not None:
            self._columns = pa.table({name: pa.nulls(0) for name in self._known})
        if self._columns is not None:
            self._write_waiting(writer)
        self.left_out += [one._replace(cut=2 * (writer.place(),)) for one, _ in self._waiting]

    def _write_waiting(self, writer: RowWriter) -> None:
        assert self._columns is not None, "they are known"  # noqa: S101 - for the types
        for items, beside in self._waiting:
            count = items.stop - items.start
            self.count += count
            before = writer.place()
            if count:
                rows = beside(_nulls(self._columns, count, self._included))
                text = f"{items.kind}: {items.message}" if items.message else items.kind
                writer.take(_with_errors(rows, [text] * count), items.start)
            self.left_out.append(items._replace(cut=(before, writer.place())))
        self._waiting.clear()


def _blocks(result: Any) -> Iterator[Block]:
    """Yield what `run` returned as rows with columns."""
    match result:
        case _ if is_block(type(result)) and not isinstance(result, Iterator):
            yield from blocks_of(result)
        case dict():
            yield of_arrays(result)
        case np.ndarray() if result.ndim == 2:  # noqa: PLR2004 - rows and columns
            yield pd.DataFrame(result)
        case np.ndarray() if result.ndim == 1 and result.dtype.kind not in "OV":
            yield pd.DataFrame({RESULT: result})
        case list() | tuple() | np.ndarray():
            yield from _of_elements(iter(result))
        case Iterator():
            for are_blocks, some in itertools.groupby(result, lambda one: is_block(type(one))):
                for piece in some if are_blocks else ():
                    yield from blocks_of(piece)
                yield from () if are_blocks else _of_elements(some)
        case _:
            raise not_rows(result)


def _of_elements(elements: Iterator[Any]) -> Iterator[Block]:
    while some := [*itertools.islice(elements, ELEMENTS_AT_ONCE)]:
        if any(is_block(type(one)) for one in some):
            msg = "run() returned a list with frames in it. Put them together with pandas.concat."
            raise ReturnTypeError(msg)
        yield column_of(some)


def _check_names(block: Block) -> None:
    """Refuse names of columns that a mini-batch in which no row succeeds could not have.

    It learns them as text from another mini-batch.
    """
    for name in () if isinstance(block, pa.Table) else block.columns:
        if not isinstance(name, NAMES) or name != name:  # noqa: PLR0124 - not a number
            msg = (
                f"run() returned a column {name!r}: with on_error='null', names of columns are "
                "text or numbers. Rename the columns, for example by "
                "frame.set_axis([str(name) for name in frame.columns], axis=1)."
            )
            raise ReturnTypeError(msg)


def _with_errors(block: Block, errors: list[str | None]) -> Block:
    """Return rows with the column `_error` behind their own."""
    names = block.column_names if isinstance(block, pa.Table) else [*block.columns]
    if ERROR in names:
        msg = f"run() returned a column {ERROR!r}, which on_error='null' adds. Rename it."
        raise ReturnTypeError(msg)
    if isinstance(block, pa.Table):
        block = block.append_column(ERROR, pa.array(errors, pa.string()))
        return block.cast(with_null_types(block.schema, [ERROR], [ERROR]))
    return block.assign(**{ERROR: pd.Series(errors, index=block.index, dtype="string")})


def _with_null_types(block: Block) -> Block:
    """Return rows whose integers and booleans have types of pandas that hold nulls."""
    if isinstance(block, pa.Table):
        return block.cast(with_null_types(block.schema))
    frame = block.copy(deep=False)
    for place, dtype in enumerate(block.dtypes):
        if isinstance(dtype, np.dtype) and dtype.kind in NULLABLE:
            bits = "" if dtype.kind == "b" else str(8 * dtype.itemsize)
            nullable: Any = f"{NULLABLE[dtype.kind]}{bits}"
            frame.isetitem(place, block.iloc[:, place].astype(nullable).array)
    return frame


def _nulls(columns: Block, count: int, without: frozenset[str]) -> Block:
    """Return rows of nulls with these columns, but for some."""
    if isinstance(columns, pa.Table):
        columns, _ = apart(columns)
        # Not by name: a text output may have two columns of the same name.
        named = zip(columns.schema, columns.columns, strict=True)
        kept = [(field, column) for field, column in named if field.name not in without]
        fields = [field.with_nullable(True) for field, _ in kept]
        arrays = [_null_array(column, count) for _, column in kept]
        return pa.table(arrays, schema=pa.schema(fields, columns.schema.metadata))
    places = [place for place, name in enumerate(columns.columns) if name not in without]
    return columns.iloc[:0, places].reset_index(drop=True).reindex(range(count))


def _null_array(column: pa.ChunkedArray, count: int) -> pa.Array:
    """Return nulls, with the categories of a column: pandas joins no others as categories."""
    nulls = pa.nulls(count, column.type)
    if not pa.types.is_dictionary(column.type) or not column.num_chunks:
        return nulls
    dictionary = column.chunk(0).dictionary
    return pa.DictionaryArray.from_arrays(nulls.indices, dictionary, ordered=column.type.ordered)
