"""The columns of a mini-batch that stand beside what `run` returned for it.

The index of a mini-batch is named `daskprs_row`, and what pandas makes of its rows keeps this
index. Rows that have it get the columns of the rows that it numbers. Without it, as many rows as
the mini-batch has are matched in their order.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from daskprs._arrow.arrow_pandas import pandas_metadata, with_notes
from daskprs._arrow.exact_casts import MISFITS
from daskprs._inputs.source.batch_format import rows_in
from daskprs._inputs.source.included import PATH, PATH_ASIDE, ROW
from daskprs._output.rows.blocks import apart, blocks_of, is_block, with_numbers
from daskprs._output.rows.format_result import of_arrays
from daskprs._output.rows.given_schema import framed
from daskprs._output.rows.result_tables import RESULT, column_of
from daskprs.errors import LoadError, Option, ReturnTypeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from daskprs._core.mini_batch import MiniBatch
    from daskprs._inputs.source.included import Included
    from daskprs._output.rows.blocks import Block

OPTION = Option("include_columns")


def taken_columns(
    included: Included, data: Any, mini_batch: MiniBatch, first_item: int = 0
) -> tuple[IncludedColumns, Any]:
    """Return the included columns, and the argument of `run`.

    `data` is a mini-batch, or a piece of it that begins at `first_item`.
    """
    count = rows_in(data)
    found: dict[str, Any] = {}
    if included.path_aside:
        data, found[PATH] = _without_path(data)
    there: Any = data if isinstance(data, (pd.DataFrame, dict)) else None
    if there is None and included.columns:
        there = _as_table(data.select(list(included.columns)))
    for name in included.names:
        if name in included.columns:
            found[name] = there[name]
        elif name != PATH:
            first = mini_batch.row_lower_bound or 0
            found[name] = np.arange(first, first + count)
        elif not included.path_aside:
            found[name] = _checked(mini_batch.piece.paths[first_item : first_item + count])
    found = {name: found[name] for name in included.names}
    is_arrow = not isinstance(data, (pd.DataFrame, dict, list))
    has_index = isinstance(data, pd.DataFrame)
    if has_index:
        data.index = pd.RangeIndex(count, name=ROW)
    columns = pa.table(found) if is_arrow else _frame(found)
    return IncludedColumns(columns, has_index=has_index), data


class IncludedColumns:
    """The included columns of one mini-batch, as they were before `run` was called.

    `has_index` says that the rows that `run` gets have the index `daskprs_row`.
    """

    def __init__(self, columns: Block, *, has_index: bool) -> None:
        self._columns = columns
        names = columns.column_names if isinstance(columns, pa.Table) else columns.columns
        self._names: list[str] = list(names)
        self._count = len(columns)
        self._has_index = has_index

    def beside(self, result: Any) -> Any:
        """Return what `run` returned, with the included columns before its own.

        What is not rows is returned as it is. Raise `ReturnTypeError` if the rows cannot be matched
        with those of the mini-batch.
        """
        if isinstance(result, pa.RecordBatchReader):
            result = result.read_all()
        if isinstance(result, Iterator) and not isinstance(result, io.IOBase):
            return self._pieces(result)
        block = _block_of(result)
        return result if block is None else self._before(block)

    def _pieces(self, pieces: Iterator[Any]) -> Iterator[Block]:
        """Yield the frames of a generator, each with the columns of its rows."""
        for piece in pieces:
            if not is_block(type(piece)):
                raise self._unmatched(1, "an element that a generator yields has no index")
            for block in blocks_of(piece):
                yield self._before(block, is_piece=True)

    def _before(self, block: Block, *, is_piece: bool = False) -> Block:
        if isinstance(block, pa.Table):
            columns = self._table()
            rows, index = apart(block)
            if ROW in index.names and ROW in rows.column_names:
                rows = rows.drop_columns([ROW])
            if columns is not None:
                return self._before_table(columns, rows, index, is_piece=is_piece)
            block = framed(rows, index)
        numbers, block = self._numbered(block)
        self._check_names(block.columns)
        if numbers is None:
            self._check_order(block, is_piece=is_piece)
            numbers = np.arange(len(block))
        beside = self._columns
        if isinstance(beside, pa.Table):
            beside = beside.to_pandas(integer_object_nulls=True)
        parts = [beside.take(numbers), block]
        whole = pd.concat([part.reset_index(drop=True) for part in parts], axis=1)
        whole.index = pd.Index(numbers)
        return whole

    def _before_table(
        self, columns: pa.Table, rows: pa.Table, index: pd.Index, *, is_piece: bool
    ) -> pa.Table:
        """Return a table with the columns before its own, which stay as they are."""
        numbers, _ = self._numbered(index.to_frame(index=True).iloc[:, :0])
        if numbers is None and rows.column_names.count(ROW) == 1:
            numbers = self._checked_numbers(rows.column(ROW).to_pandas())
            rows = rows.drop_columns([ROW])
        self._check_names(rows.column_names)
        if numbers is None:
            self._check_order(index.to_frame(index=True), is_piece=is_piece)
            beside = columns.slice(0, len(rows))
        else:
            beside = columns.take(pa.array(numbers))
        parts = [beside, rows]
        fields = [field for part in parts for field in part.schema]
        arrays = [column for part in parts for column in part.columns]
        notes = [pandas_metadata(part.schema) or {"columns": []} for part in parts]
        noted = {**notes[1], "columns": [one for each in notes for one in each["columns"]]}
        made = with_notes(pa.schema(fields), noted | {"index_columns": [], "column_indexes": []})
        whole = pa.table(arrays, schema=made)
        return whole if numbers is None else with_numbers(whole, numbers)

    def _table(self) -> pa.Table | None:
        """Return the columns as Arrow; None if Arrow has no types for them."""
        if isinstance(self._columns, pa.Table):
            return self._columns
        try:
            return pa.Table.from_pandas(self._columns, preserve_index=False)
        except MISFITS:
            return None

    def _numbered(self, frame: pd.DataFrame) -> tuple[Any, pd.DataFrame]:
        """Return the numbers that rows have as an index or a column, and the other columns."""
        if ROW in frame.index.names:
            return self._checked_numbers(frame.index.get_level_values(ROW)), frame
        if frame.columns.nlevels == 1 and list(frame.columns).count(ROW) == 1:
            return self._checked_numbers(frame[ROW]), frame.drop(columns=ROW)
        return None, frame

    def _checked_numbers(self, numbers: pd.Index | pd.Series) -> Any:
        if pd.api.types.is_integer_dtype(numbers.dtype) and not numbers.hasnans:
            found = numbers.to_numpy(np.int64)
            outside = found[(found < 0) | (found >= self._count)]
            if not len(outside):
                return found
            wrong = f"holds {outside[0]}"
        elif not len(numbers):
            return np.empty(0, np.int64)
        else:
            wrong = f"is of the type {numbers.dtype}"
        raise self._unmatched(len(numbers), f"{ROW!r} {wrong}, not numbers below {self._count}")

    def _check_order(self, frame: pd.DataFrame, *, is_piece: bool) -> None:
        """Refuse rows that are not as many, or have an index of other labels."""
        index = frame.index
        if not len(index):
            return
        if is_piece:
            why = f"a frame that a generator yields needs the index {ROW!r}"
        elif len(index) != self._count:
            why = f"they lack the index {ROW!r}" if self._has_index else "the numbers differ"
        elif not index.equals(pd.RangeIndex(self._count)):
            named = ", ".join(repr(name) for name in index.names if name is not None)
            why = f"they have an index of their own{named and f', named {named}'}"
        else:
            return
        raise self._unmatched(len(index), why)

    def _check_names(self, names: Iterable[Any]) -> None:
        there = {str(name) for name in names}
        for name in self._names:
            if name in there:
                msg = (
                    f"run() returned a column {name!r}, and {OPTION} adds a column of that name. "
                    f"Leave it out of what run() returns, or out of {OPTION}."
                )
                raise ReturnTypeError(msg)

    def _unmatched(self, count: int, why: str) -> ReturnTypeError:
        keep = (
            f", or rows that keep its index, which is named {ROW!r}. A filter, a sort and a "
            "repetition keep it, and reset_index drops it"
        )
        return ReturnTypeError(
            f"run() returned {count} row{'' if count == 1 else 's'} for a mini-batch of "
            f"{self._count}, and {OPTION} cannot "
            f"match them: {why}. Return all at once as many rows as the mini-batch has, in its "
            f"order{keep if self._has_index else ''}."
        )


def _frame(columns: dict[str, Any]) -> pd.DataFrame:
    """Return a frame with columns of its own."""
    return pd.DataFrame(
        {name: pd.Series(one).reset_index(drop=True) for name, one in columns.items()}
    )


def _as_table(rows: Any) -> pa.Table:
    """Return an Arrow table, or a frame of polars, as an Arrow table."""
    return rows if isinstance(rows, pa.Table) else rows.to_arrow()


def _without_path(rows: Any) -> tuple[Any, Any]:
    """Return rows without the column of paths that `run` does not get, and this column."""
    if isinstance(rows, (pd.DataFrame, dict)):
        column = rows.pop(PATH_ASIDE)
        return rows, column
    column = _as_table(rows).column(PATH_ASIDE)
    if isinstance(rows, pa.Table):
        return rows.drop_columns([PATH_ASIDE]), column
    return rows.drop(PATH_ASIDE), column


def _checked(paths: Sequence[str]) -> list[str]:
    """Return paths that can be a column: those that are UTF-8."""
    for path in paths:
        try:
            path.encode()
        except UnicodeEncodeError:
            msg = f"{path!r} is not UTF-8: {OPTION} cannot make a column of it. Rename the file."
            raise LoadError(msg) from None
    return list(paths)


def _block_of(result: Any) -> Block | None:
    """Return what `run` returned as one block; None if that is not rows."""
    match result:
        case _ if is_block(type(result)):
            blocks = [*blocks_of(result)]
            return blocks[0] if len(blocks) == 1 else pa.concat_tables(blocks)
        case dict():
            return of_arrays(result)
        case np.ndarray() if result.ndim == 2:  # noqa: PLR2004 - rows and columns
            return pd.DataFrame(result)
        case np.ndarray() if result.ndim == 1 and result.dtype.kind not in "OV":
            return pd.DataFrame({RESULT: result})
        case list() | tuple() | np.ndarray() if _are_elements(result):
            return column_of([*result])
        case _:
            return None


def _are_elements(values: Any) -> bool:
    if isinstance(values, np.ndarray):
        return values.ndim == 1
    return not any(map(is_block, {*map(type, values)}))
