"""From Arrow to polars and back, around what one of them cannot take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from daskprs._arrow.exact_casts import MISFITS
from daskprs.errors import ReturnTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

is_ = pa.types


def _is_list_of_none(type_: pa.DataType) -> bool:
    return bool(is_.is_fixed_size_list(type_)) and type_.list_size == 0


NOT_IN_POLARS = is_.is_decimal256, is_.is_interval, _is_list_of_none
"""Types at which polars panics, and writes a traceback."""


def polars_frame(table: pa.Table) -> pl.DataFrame:
    """Return a table as a frame of polars, which shares the memory of most columns.

    polars reads the nulls of a slice of lists of fixed size as those of other rows, and refuses
    them, so that such columns are copied.
    """
    import polars as pl

    for place, field in enumerate(table.schema):
        column = table.column(place)
        if _may_have_null_lists(column):
            copied = [pa.concat_arrays([chunk]) for chunk in column.chunks]
            table = table.set_column(place, field, pa.chunked_array(copied, field.type))
    try:
        if any(contains(field.type, *NOT_IN_POLARS) for field in table.schema):
            raise TypeError
        return pl.DataFrame(pl.from_arrow(table))
    except _misfits() as error:
        unfit = not_in_polars(table.schema)
        if unfit is None:
            raise
        msg = f"{unfit} Read the rows by to_arrow() or to_pandas(), or return another type."
        raise ReturnTypeError(msg) from error


def _misfits() -> tuple[type[BaseException], ...]:
    import polars as pl

    return pl.exceptions.PolarsError, pl.exceptions.PanicException, *MISFITS


def not_in_polars(schema: pa.Schema) -> str | None:
    """Return which column polars cannot hold, and why; None if it holds all."""
    import polars as pl

    for field in schema:
        try:
            if contains(field.type, *NOT_IN_POLARS):
                msg = "it has no such type"
                raise TypeError(msg)
            pl.from_arrow(pa.schema([field]).empty_table())
        except _misfits() as error:
            return f"the column {field.name!r} is {field.type}, which polars cannot hold ({error})."
    return None


def arrow_table(frame: pl.DataFrame) -> pa.Table:
    """Return a frame of polars as a table.

    Raise `TypeError` for a column that Arrow has no type for. In place of objects, polars would
    give Arrow their addresses in memory.
    """
    import polars as pl

    unknown = [name for name, dtype in frame.schema.items() if dtype == pl.Object]
    try:
        if not unknown:
            return frame.to_arrow()
    except pa.ArrowInvalid:
        unknown = [name for name in frame.columns if not _is_known(frame.select(name))]
        if not unknown:
            raise
    msg = f"the column {unknown[0]!r} is {frame.schema[unknown[0]]}, which Arrow cannot hold"
    raise TypeError(msg)


def _is_known(frame: pl.DataFrame) -> bool:
    try:
        frame.clear().to_arrow()
    except pa.ArrowInvalid:
        return False
    return True


def _may_have_null_lists(column: pa.ChunkedArray) -> bool:
    """Say whether a list of fixed size in a column may be null; of inner ones that is unknown."""
    type_ = column.type
    if is_.is_fixed_size_list(type_) and not contains(type_.value_type, is_.is_fixed_size_list):
        return bool(column.null_count)
    return contains(type_, is_.is_fixed_size_list)


def contains(type_: pa.DataType, *kinds: Callable[[pa.DataType], bool]) -> bool:
    """Say whether a type, or one inside it, is of some kinds."""
    if isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    if is_.is_dictionary(type_):
        type_ = type_.value_type
    inner = (type_.field(place).type for place in range(type_.num_fields))
    return any(kind(type_) for kind in kinds) or any(contains(one, *kinds) for one in inner)
