"""The cells of a column as `DataFrame.to_csv` hands them to `csv.writer`; None is a null.

This serves frames of a few rows, where lists are faster than kernels, and columns that no kernel
writes as pandas does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import pandas as pd
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable


UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
DAY_S = 86_400
FIRST_S, LAST_S = -30_610_224_000, 253_402_300_799
"""Seconds since 1970 of the years from 1000 to 9999; other years have more or fewer digits in Arrow
and pandas."""
NOT_A_TIME = np.iinfo(np.int64).min


def date_text(values: np.ndarray[Any, Any]) -> Any:
    """Format an array of ``datetime64``: a ``large_string`` array, or None for odd years."""
    unit = coarsest_unit(values)
    if unit is None:
        return None
    kind = pa.date32() if unit == "D" else pa.timestamp(unit)
    return pa.array(values).cast(kind).cast(pa.large_string())


def coarsest_unit(values: np.ndarray[Any, Any]) -> str | None:
    """Return the unit that all dates are written with: a day if all are midnights.

    Returns
    -------
    str or None
        ``"D"``, ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``; None where years have no four digits.

    """
    unit, _ = np.datetime_data(values.dtype)
    per_second = UNITS[unit]
    ticks = values.view(np.int64)
    known = ticks[ticks != NOT_A_TIME]
    if not len(known):
        return "D"
    if int(known.min()) < FIRST_S * per_second or int(known.max()) > LAST_S * per_second:
        return None
    if not (known % (DAY_S * per_second)).any():
        return "D"
    return next(
        name
        for name, per in UNITS.items()
        if per >= per_second or not (known % (per_second // per)).any()
    )


Column: TypeAlias = "pd.Series[Any] | pd.Index[Any]"
AS_OBJECTS = (
    pd.StringDtype,
    pd.BooleanDtype,
    *(pd.Int8Dtype, pd.Int16Dtype, pd.Int32Dtype, pd.Int64Dtype),
    *(pd.UInt8Dtype, pd.UInt16Dtype, pd.UInt32Dtype, pd.UInt64Dtype),
)
"""Extension types whose cells are objects with their own text form."""
DATES = "mM"
DOUBLE_BYTES = 8
FEW_CATEGORIES = 100


def cells_of(column: Column) -> list[Any] | None:
    """Return the cells of a column, or None where only pandas knows them."""
    dtype: Any = column.dtype
    array: Any = column.array
    match dtype:
        case np.dtype():
            return _plain(column)
        case pd.Float64Dtype() | pd.Float32Dtype():
            values = masked_floats(column)
            return None if values is None else _floats(values)
        case pd.DatetimeTZDtype():
            return _with_nulls(column.astype(str).tolist(), pd.isna(array))
        case pd.CategoricalDtype():
            return _category(column)
        case _ if isinstance(dtype, AS_OBJECTS):
            return _objects(array)
        case _:
            return None


def has_plain_categories(column: Column) -> bool:
    """Say whether categories are written as in a column of their own type."""
    # Dates are written as those of a column of dates, narrow floats as wide ones.
    dtype: Any = column.dtype
    categories = dtype.categories.dtype
    return categories.kind in "iubO" or categories == np.float64


def has_few_categories(column: Column) -> bool:
    """Say whether all categories are formatted faster than all cells."""
    dtype: Any = column.dtype
    return len(dtype.categories) <= max(len(column), FEW_CATEGORIES)


def masked_floats(column: Column) -> np.ndarray[Any, Any] | None:
    """Return floats with NaN for null, or None if a NaN is a value, which is written as NaN."""
    masked: Any = column.array
    values: np.ndarray[Any, Any] = masked.to_numpy(masked.dtype.numpy_dtype, na_value=np.nan)
    return values if (np.isnan(values) == pd.isna(masked)).all() else None


def matrix_rows(values: np.ndarray[Any, Any]) -> Iterable[list[Any]]:
    """Yield the rows of an array of numbers or booleans."""
    columns = values.shape[1]
    flat = _floats(values.ravel()) if values.dtype.kind == "f" else values.ravel().tolist()
    return (flat[start : start + columns] for start in range(0, len(flat), columns))


def _plain(column: Column) -> list[Any] | None:
    values: Any = column.to_numpy()
    cells: list[Any]
    match values.dtype.kind:
        case "i" | "u" | "b":
            cells = values.tolist()
            return cells
        case "f":
            return _floats(values)
        case "O":
            return _with_nulls(values.tolist(), pd.isna(values))
        case "M" if (unit := coarsest_unit(values)) is not None:
            cells = np.datetime_as_string(values, cast("Any", unit)).tolist()
            if unit != "D":
                cells = [cell.replace("T", " ") for cell in cells]
            return _with_nulls(cells, np.isnat(values))
        case "m" | "M":
            return _with_nulls(column.astype(str).tolist(), pd.isna(column.array))
        case _:
            return None


def _category(column: Column) -> list[Any] | None:
    category: Any = column.array
    if not has_plain_categories(column):
        return None
    if not has_few_categories(column):
        return _objects(category)
    known = [*category.categories.tolist(), None]  # the last one is for code -1
    return [known[code] for code in category.codes.tolist()]


def _objects(array: Any) -> list[Any]:
    return _with_nulls(array.astype(object).tolist(), pd.isna(array))


def _floats(values: np.ndarray[Any, Any]) -> list[Any]:
    # `csv.writer` writes an 8-byte float as NumPy does; a 4-byte float has fewer digits.
    plain = values if values.dtype.itemsize == DOUBLE_BYTES else values.astype(str)
    return _with_nulls(plain.tolist(), np.isnan(values))


def _with_nulls(cells: list[Any], null: Any) -> list[Any]:
    for row in np.flatnonzero(null):
        cells[row] = None
    return cells
