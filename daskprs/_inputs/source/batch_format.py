"""The forms in which `run` can get the rows of a table: `batch_format`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from daskprs._arrow.arrow_polars import not_in_polars, polars_frame
from daskprs._arrow.exact_casts import MISFITS
from daskprs._inputs.source.columns import check_different
from daskprs.errors import InputError, LoadError, Option, OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from daskprs._inputs.source.read_options import BatchFormat
    from daskprs._inputs.source.source import Source, TableSource


class BatchForm(NamedTuple):
    """Turns rows, as a reader gives them, into the argument of `run`."""

    batch_format: BatchFormat
    object_types: Mapping[str, pa.DataType]
    """Arrow types for the columns of Python objects in a frame; others are inferred."""
    keeps_nan: bool
    """Whether a NaN in a frame is a value of its own; else it is how pandas writes null."""

    def prepare(self) -> None:
        """Import what is needed, so that an agent without it does not start."""
        if self.batch_format == "polars":
            import polars  # noqa: F401, ICN001 - only its import

    def of(self, rows: pd.DataFrame | pa.Table) -> Any:
        """Return the argument of `run`."""
        if self.batch_format == "numpy":
            return {name: _array_of(column) for name, column in rows.items()}
        table = rows if isinstance(rows, pa.Table) else self._arrow(rows)
        if self.batch_format == "pyarrow":
            return table
        return polars_frame(table)

    def _arrow(self, frame: pd.DataFrame) -> pa.Table:
        columns = []
        for place, label in enumerate(frame.columns):
            column = frame.iloc[:, place]
            nan_is_null = not (self.keeps_nan and str(column.dtype).startswith("float"))
            wanted = self.object_types.get(label) if column.dtype == object else None
            try:
                columns.append(pa.array(column, wanted, from_pandas=nan_is_null))
            except MISFITS as error:
                raise LoadError(*no_arrow(label, error)) from error
        return pa.table(columns, names=[str(label) for label in frame.columns])


def _array_of(column: pd.Series) -> np.ndarray[Any, Any]:
    """Return a column as an array: of its type if that is one of NumPy, else of Python objects.

    NumPy would make floats of some nullable integers, and integers of those without nulls. pandas
    itself makes floats of categories that are integers, beside nulls.
    """
    if column.dtype == "category":
        column = column.astype(object)
    array: np.ndarray[Any, Any] = column.to_numpy(
        None if isinstance(column.dtype, np.dtype) else np.dtype(object)
    )
    return array


def batch_form(source: Source, batch_format: BatchFormat) -> BatchForm | None:
    """Return the form of mini-batches of a source; None if they stay as they are read."""
    if batch_format == "pandas":
        return None
    table = cast("TableSource", source)
    return BatchForm(batch_format, dict(table.object_types), table.keeps_nan)


def no_arrow(label: Any, error: Exception) -> tuple[Any, ...]:
    """Return the message for a column of objects that Arrow has no type for."""
    msg = f"the column {label!r} holds values that no type of Arrow holds: {error}. Use "
    return msg, Option("batch_format", "pandas"), ", or give the column values of one type."


def rows_in(data: Any) -> int:
    """Return the number of items in the argument of `run`."""
    if isinstance(data, dict):  # of arrays
        return len(next(iter(data.values()), ()))
    return len(data)


def piece_of(data: Any, start: int, stop: int) -> Any:
    """Return consecutive items of the argument of `run`, as `run` gets them in a mini-batch.

    They are a copy: `run` may change what it gets.
    """
    match data:
        case dict():
            return {name: array[start:stop].copy() for name, array in data.items()}
        case list():
            return data[start:stop]
        case pa.Table():
            return data.slice(start, stop - start)
    if hasattr(data, "iloc"):
        return data.iloc[start:stop].reset_index(drop=True)
    return data.slice(start, stop - start).clone()  # of polars


def joined_pieces(data: Any, ranges: Sequence[tuple[int, int]]) -> Any:
    """Return items of several ranges in one, as `run` would get them in a mini-batch."""
    match data:
        case list():
            return [one for start, stop in ranges for one in data[start:stop]]
        case pa.Table():
            return pa.concat_tables([data.slice(start, stop - start) for start, stop in ranges])
    numbers = [number for start, stop in ranges for number in range(start, stop)]
    if isinstance(data, dict):
        return {name: array[numbers] for name, array in data.items()}
    return data.iloc[numbers] if hasattr(data, "iloc") else data[numbers]


def check_columns_fit(batch_format: BatchFormat, names: Sequence[Any]) -> None:
    """Refuse a table without columns, or with two of one name, where the format cannot hold it."""
    if batch_format == "pandas":
        return
    given = Option("batch_format", batch_format)
    if not names:
        raise OptionError(given, ": the input has no columns, and its rows would be lost.")
    if batch_format != "pyarrow":
        check_different(names, names, "batch_format")


def check_polars() -> None:
    """Refuse polars where it is not installed."""
    if find_spec("polars") is None:
        given = Option("batch_format", "polars")
        raise OptionError(
            given, ': polars is not installed. Add it: pip install "daskprs[polars]".'
        )


def not_in_arrow(error: TypeError) -> InputError:
    """Return the error for a frame of polars with a column that Arrow cannot hold."""
    return InputError(
        f"data: {error}, and mini-batches travel as Arrow. Cast it in the frame, or drop it."
    )


def check_polars_holds(schema: pa.Schema, batch_format: BatchFormat) -> None:
    """Refuse columns of types that polars does not have, where mini-batches are its frames."""
    if batch_format != "polars":
        return
    unfit = not_in_polars(schema)
    if unfit is not None:
        instead = Option("batch_format", "pyarrow")
        msg = f"data: {unfit} Leave it out by "
        raise InputError(msg, Option("columns"), ", or use ", instead, ".")
