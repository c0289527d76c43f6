"""What `run` returned as tables of Arrow, piece by piece, or as one frame."""

from __future__ import annotations

from collections.abc import KeysView, ValuesView
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from daskprs._arrow.arrow_pandas import pandas_metadata, with_notes, without_labels
from daskprs._arrow.exact_casts import MISFITS
from daskprs._arrow.object_times import as_times
from daskprs._output.rows.blocks import in_arrow, with_times
from daskprs._output.rows.typed_rows import KeptTable, joined_frames
from daskprs.errors import ReturnTypeError, class_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from daskprs._output.rows.typed_rows import TypedPiece

RESULT = "result"
"""The name of the column that holds elements of lists and arrays."""
SHOWN_KINDS = 3
NO_LABELS: dict[str, Any] = {"index_columns": [], "column_indexes": []}
"""Notes of pandas without any."""


def as_rows(result: Any) -> Any:
    """Return what `run` returned in a form that is written, if it is as plain a column as a Series.

    Such are the arrays of Arrow and pandas, an index, a range, and the keys or values of a dict.
    In a masked array, what is masked is null.
    """
    match result:
        case pa.Array() | pa.ChunkedArray():
            return pa.table({RESULT: result})
        case pd.api.extensions.ExtensionArray():
            return pd.Series(result, name=RESULT)
        case pd.Index() if result.nlevels == 1:
            return pd.Series(result, range(len(result)), name=RESULT)
        case range() | KeysView() | ValuesView():
            return [*result]
        case np.ma.MaskedArray() if result.ndim in (1, 2):
            return _of_masked(result)
    return result


def _of_masked(array: np.ma.MaskedArray[Any, Any]) -> list[Any] | pd.DataFrame:
    if array.ndim == 1:  # a list, as other mini-batches may have none that is masked
        return [None if one is np.ma.masked else one for one in array]
    return pd.DataFrame({at: with_mask(array[:, at]) for at in range(array.shape[1])})


def with_mask(array: np.ndarray[Any, Any]) -> Any:
    """Return an array as a column in which masked integers and booleans stay what they are.

    pandas makes floats and objects of them.
    """
    makers = {"i": pd.arrays.IntegerArray, "u": pd.arrays.IntegerArray, "b": pd.arrays.BooleanArray}
    maker = makers.get(array.dtype.kind)
    if maker is None or not isinstance(array, np.ma.MaskedArray):
        return array
    values = array.data.astype(array.dtype.newbyteorder("="))
    return maker(values, np.ma.getmaskarray(array).copy())


def tables_of(pieces: Iterable[TypedPiece], mini_batch: int) -> Iterator[pa.Table]:
    """Yield the pieces of a mini-batch as tables; the elements of lists make one column.

    Raise `ReturnTypeError` when no type of Arrow holds the values of a column.
    """
    for are_frames, some in groupby(pieces, key=lambda piece: piece.kind == "frame"):
        if are_frames:
            for piece in some:
                value = piece.value
                kept = isinstance(value, KeptTable)
                yield _plain(value) if kept else table_of(value, mini_batch)
        else:
            # Notes of pandas would say that no element is null.
            values = [one for piece in some for one in piece.value]
            yield table_of(column_of(values), mini_batch).replace_schema_metadata(None)


def table_of(frame: pd.DataFrame, mini_batch: int) -> pa.Table:
    """Return a frame as a table; a NaN becomes null, and labels become text."""
    try:
        table = in_arrow(with_times(frame))
    except MISFITS as error:
        raise _no_arrow(frame, mini_batch, error) from error
    return table.replace_schema_metadata(without_labels(table.schema).metadata)


def _plain(kept: KeptTable) -> pa.Table:
    """Return a kept table as `table_of` returns its frame; one that `run` returned as it is."""
    table = kept.table.replace_schema_metadata(None)
    if not kept.of_frame:
        return table
    pandas = pandas_metadata(kept.table.schema)
    noted = {one["field_name"] for one in (pandas or {"columns": []})["columns"]}
    for place, field in enumerate(table.schema):
        if pa.types.is_floating(field.type) and field.name not in noted:
            nan = pc.is_nan(table.column(place))
            if pc.any(nan).as_py():
                nulls = pa.scalar(None, field.type)
                table = table.set_column(place, field, pc.if_else(nan, nulls, table.column(place)))
    return table.cast(with_notes(table.schema, pandas or {"columns": []} | NO_LABELS))


def column_of(values: list[Any]) -> pd.DataFrame:
    """Return elements as a frame of one column.

    Its type is that of the elements if they have one in common, else ``object``: an int beside a
    float stays an int.
    """
    kinds: set[type[Any]] = {type(value) for value in values}
    kind = kinds.pop() if len(kinds) == 1 else object
    if kind in (int, float, bool, str):
        try:
            series = pd.Series(values)
        except UnicodeEncodeError:  # Arrow refuses a single surrogate
            series = pd.Series(values, dtype="object")
    elif issubclass(kind, np.generic) and not issubclass(kind, np.void):
        series = pd.Series(np.array(values))
    else:
        series = pd.Series(values, dtype="object")
    return series.to_frame(RESULT)


def one_frame(pieces: Iterable[tuple[int, TypedPiece]]) -> pd.DataFrame | None:
    """Return pieces, each with the number of its mini-batch, as one frame; None without pieces.

    Raise `ReturnTypeError` when some are frames and others are not.
    """
    frames: list[pd.DataFrame | KeptTable] = []
    values: list[Any] = []
    for index, piece in pieces:
        if piece.kind == "frame":
            frames.append(piece.value)
        else:
            values.extend(piece.value)
        if frames and values:
            msg = (
                "to_pandas: run() returned frames for some mini-batches and lists or arrays for "
                f"others (mini-batch {index} is the first that differs): they make no one frame."
            )
            raise ReturnTypeError(msg)
    if values:
        return column_of(values)
    return _together(frames) if frames else None


def _together(frames: list[pd.DataFrame | KeptTable]) -> pd.DataFrame:
    """Concatenate frames.

    Frames without rows are left out, since their guessed types would disturb those of the others.
    If all frames are without rows, the first one gives the columns.
    """
    filled = [frame for frame in frames if len(frame)] or frames[:1]
    joined = list(joined_frames(_with_types(filled)))
    return joined[0] if len(joined) == 1 else pd.concat(joined, ignore_index=True)


def _with_types(frames: list[pd.DataFrame | KeptTable]) -> list[pd.DataFrame | KeptTable]:
    """Return frames whose columns of no type but null have the types, and labels, of the others.

    Rows of nulls of a mini-batch in which no row has succeeded have only names.
    """
    untyped = {
        at: one for at, one in enumerate(frames) if isinstance(one, KeptTable) and one.untyped
    }
    typed = next((one for at, one in enumerate(frames) if at not in untyped), None)
    if not untyped or typed is None:
        return frames
    if isinstance(typed, KeptTable):
        typed = next(KeptTable(typed.table.slice(0, 1), typed.of_frame).frames())
    empty = typed.iloc[:0]
    return [untyped[at].like(empty) if at in untyped else one for at, one in enumerate(frames)]


def _no_arrow(frame: pd.DataFrame, mini_batch: int, error: Exception) -> ReturnTypeError:
    """Return the error for a frame that Arrow cannot hold: it names the first such column."""
    where = f"what run() returned for mini-batch {mini_batch}"
    for place, label in enumerate(frame.columns):
        column = frame.iloc[:, place]
        try:
            pa.array(as_times(column))
        except MISFITS as misfit:
            kinds = sorted({class_name(type(cell)) for cell in column})
            held = f" of {', '.join(kinds[:SHOWN_KINDS])}" if column.dtype == object else ""
            msg = (
                f"the column {label!r} ({column.dtype}{held}) in {where} has no type of Arrow: "
                f"{misfit}. It was kept as a pickle: read the rows by to_pandas(), or return "
                "values of one plain type."
            )
            return ReturnTypeError(msg)
    return ReturnTypeError(f"{where} makes no Arrow table: {error}. Read the rows by to_pandas().")
