"""Blocks: rows with columns as the forms of output take them, a pandas frame or an Arrow table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa

from daskprs._arrow.arrow_pandas import (
    UNNAMED_INDEX,
    frame_of,
    note,
    pandas_metadata,
    with_notes,
)
from daskprs._arrow.arrow_polars import arrow_table
from daskprs._arrow.object_times import as_times
from daskprs.errors import ReturnTypeError, class_name, how_to_convert, is_like_array

if TYPE_CHECKING:
    from collections.abc import Iterator

Block: TypeAlias = "pd.DataFrame | pa.Table"
CELLS_AT_ONCE = 100_000
"""Cells of each piece in which an Arrow table becomes frames, as many as `to_csv` itself uses."""
SMALL = 1000
"""Values of rows up to which they are small."""
SHOWN_CHARS = 200
LARGEST = {128: (pa.decimal128, 38), 256: (pa.decimal256, 76)}
"""The types of Arrow for Python's decimals, and their most digits, by their bits."""
FRAMES = (pd.DataFrame, pd.Series, pa.Table, pa.RecordBatch)
ALLOWED = (
    "a pandas or polars DataFrame or Series, a list, a tuple, an array of NumPy, pandas or Arrow, "
    "a dict of NumPy arrays, an Arrow table or stream, or a generator of frames or lines"
)


def blocks_of(value: Any) -> Iterator[Block]:
    """Yield what a frame, a series, a table or a stream of any library holds, as blocks.

    A stream yields its batches; one without rows still yields a block with its columns.
    """
    match value:
        case pd.DataFrame() | pa.Table():
            yield value
        case pd.Series():
            yield value.to_frame()
        case pa.RecordBatch():
            yield pa.Table.from_batches([value])
        case _ if _is_of_polars(value):
            frame = value.to_frame() if hasattr(value, "to_frame") else value
            try:
                table = arrow_table(frame)
            except TypeError as error:
                msg = f"run() returned a polars frame: {error}. Cast it to a type that Arrow has."
                raise ReturnTypeError(msg) from None
            yield table
        case _:
            yield from _blocks_of_stream(value)


def _blocks_of_stream(stream: Any) -> Iterator[Block]:
    try:
        batches = pa.RecordBatchReader.from_stream(stream)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise not_rows(stream) from error
    has_rows = False
    for batch in batches:
        has_rows = True
        yield from blocks_of(batch)
    if not has_rows:
        yield batches.schema.empty_table()


def frames_of(block: Block) -> Iterator[pd.DataFrame]:
    """Yield a block as pandas frames: an Arrow table in pieces of some thousand rows."""
    if isinstance(block, pd.DataFrame):
        yield block
        return
    rows = max(1, CELLS_AT_ONCE // max(1, block.num_columns))
    for start in range(0, max(1, block.num_rows), rows):
        yield frame_of(block.slice(start, rows))


def with_times(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame in which objects that are times have a type of pandas.

    Arrow would leave out the nanoseconds of such objects. Raise `TypeError` when dates and
    datetimes are in one column: Arrow would leave out the time of the day.
    """
    times = {
        place: as_times(frame.iloc[:, place])
        for place, dtype in enumerate(frame.dtypes)
        if isinstance(dtype, np.dtype) and dtype.kind == "O"
    }
    if not times:
        return frame
    columns = [times.get(place, frame.iloc[:, place]) for place in range(frame.shape[1])]
    return pd.concat(columns, axis=1, keys=range(len(columns))).set_axis(frame.columns, axis=1)


def in_arrow(frame: pd.DataFrame) -> pa.Table:
    """Return a frame without its index as Arrow."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    inferred = table.schema
    schema = roomy(inferred, frame)
    return table if schema is inferred else table.cast(schema)


def roomy(schema: pa.Schema, frame: pd.DataFrame) -> pa.Schema:
    """Return the schema that Arrow has for a frame, with most digits for Python's decimals.

    Arrow counts the digits of these rows, and those of other mini-batches may have more.
    """
    for place, type_ in enumerate(schema.types):
        may_have = pa.types.is_decimal(type_) or pa.types.is_nested(type_)
        if may_have and isinstance(frame.dtypes.iloc[place], np.dtype):
            largest = _with_most_digits(type_)
            if largest != type_:
                schema = schema.set(place, schema.field(place).with_type(largest))
    return schema


def _with_most_digits(type_: pa.DataType) -> pa.DataType:
    """Return a type that Arrow has found for objects, with most digits for the decimals in it."""
    if pa.types.is_decimal(type_):
        largest, digits = LARGEST[type_.bit_width]
        return largest(digits, type_.scale)
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_with_most_digits(type_.value_type)))
    if pa.types.is_struct(type_):
        return pa.struct([one.with_type(_with_most_digits(one.type)) for one in type_])
    return type_


def is_block(kind: type) -> bool:
    """Say whether objects of a class are rows with columns, for Arrow if not for pandas."""
    return issubclass(kind, FRAMES) or hasattr(kind, "__arrow_c_stream__")


def is_series(value: Any) -> bool:
    """Say whether rows are those of one column, whose name is often a row's label or a key."""
    return isinstance(value, pd.Series) or (_is_of_polars(value) and hasattr(value, "to_frame"))


def is_stream(value: Any) -> bool:
    """Say whether rows come in batches of Arrow that need not exist before they are read."""
    is_known = isinstance(value, FRAMES) or _is_of_polars(value)
    return hasattr(value, "__arrow_c_stream__") and not is_known


def _is_of_polars(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "polars"


def is_small(result: Any) -> bool:
    """Say whether rows are so few that it takes no time to write them."""
    match result:
        case pd.DataFrame() | pd.Series() | np.ndarray():
            return bool(result.size <= SMALL)
        case pa.Table() | pa.RecordBatch():
            return bool(result.num_rows * result.num_columns <= SMALL)
        case list() | tuple():
            return len(result) <= SMALL
    return False


def has_index(value: Any) -> bool:
    """Say whether rows have an index; in an Arrow table it is columns that pandas has written.

    A range index does not count: it is only a note in the metadata, which stays when Arrow filters
    or sorts rows.
    """
    if isinstance(value, (pd.DataFrame, pd.Series)):
        return True
    if not isinstance(value, (pa.Table, pa.RecordBatch)):
        return False
    noted = (value.schema.pandas_metadata or {}).get("index_columns", [])
    columns = [one for one in noted if isinstance(one, str)]
    return bool(columns) and set(columns) <= set(value.schema.names)


def apart(table: pa.Table) -> tuple[pa.Table, pd.Index]:
    """Return a table without an index, and the index that pandas has written into it.

    An index with a name is a column of the table, too, as Arrow itself has it; one without a name
    is left out. The columns stay as they are: pandas would change the types and nulls of some.
    """
    notes = table.schema.pandas_metadata or {}
    noted = notes.get("index_columns", [])
    names = [one for one in noted if isinstance(one, str) and one in table.column_names]
    if not names:
        return table, _noted_range(table, noted)
    index = table.select(names).to_pandas().index
    rows = table.drop_columns([name for name in names if name.startswith(UNNAMED_INDEX)])
    written = json.dumps({**notes, "index_columns": []}).encode()
    return rows.replace_schema_metadata({**table.schema.metadata, b"pandas": written}), index


def _noted_range(table: pa.Table, noted: list[Any]) -> pd.Index:
    """Return the range that pandas has noted, if it has as many numbers as there are rows."""
    for one in noted:
        if isinstance(one, dict) and one.get("kind") == "range":
            index = pd.RangeIndex(one["start"], one["stop"], one["step"], name=one["name"])
            if len(index) == len(table):
                return index
    return pd.RangeIndex(len(table))


def with_numbers(table: pa.Table, numbers: np.ndarray[Any, Any]) -> pa.Table:
    """Return a table with row numbers as an index without a name, as pandas writes it."""
    name = f"{UNNAMED_INDEX}0__"
    notes = pandas_metadata(table.schema) or {"columns": []}
    columns = [*notes["columns"], note(name, "int64") | {"name": None}]
    index = {"index_columns": [name], "column_indexes": [], "columns": columns}
    table = table.append_column(name, pa.array(numbers))
    return table.cast(with_notes(table.schema, notes | index))


def not_rows(result: Any) -> ReturnTypeError:
    """Return the error for a result that cannot be rows."""
    shown = ""
    if isinstance(result, str):  # some scripts return the error that they have caught
        cut = "…" if len(result) > SHOWN_CHARS else ""
        shown = f", {result[:SHOWN_CHARS]!r}{cut}"
    msg = f"run() returned a {class_name(type(result))}{shown}. Return {ALLOWED}."
    values = result.values() if isinstance(result, dict) else ()
    if any(isinstance(one, list) or is_like_array(one) for one in values):
        msg += " Make arrays of its values by numpy.array, or a frame of it by pandas.DataFrame."
    return ReturnTypeError(msg + how_to_convert(result))
