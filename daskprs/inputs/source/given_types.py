"""Column types that the caller gives for a table with types of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from daskprs.errors import InputError, Option, OptionError
from daskprs.inputs.source.columns import check_columns, check_different

if TYPE_CHECKING:
    from collections.abc import Mapping


def given_type(name: str, dtype: Any, *, has_nulls: bool = False) -> Any:
    """Return the requested pandas type.

    Raises
    ------
    OptionError
        When the type does not exist, cannot hold the column's nulls, or is not one to which
        values of a table are converted.

    """
    given = f": {dtype!r}, given for the column {name!r},"
    try:
        known = pd.api.types.pandas_dtype(dtype)
    except (TypeError, ValueError) as error:
        raise OptionError(Option("dtypes"), f"{given} is no type of pandas: {error}.") from error
    if arrow_type_of(known) is None:
        told = f"{given} is none of the types that a table with types of its own is converted to"
        more = " (numbers, booleans, text, types of Arrow). Convert the column in run()."
        raise OptionError(Option("dtypes"), told, more)
    if has_nulls and isinstance(known, np.dtype) and known.kind in "iub":
        told = f"{given} holds no null, and the column has some. "
        raise OptionError(Option("dtypes"), told, "Say 'Int64', 'boolean' or 'float64'.")
    return known


def arrow_type_of(known: Any) -> pa.DataType | None:
    """Return the type of Arrow that holds the values of a type of pandas; None if none does."""
    if isinstance(known, pd.ArrowDtype):
        return known.pyarrow_dtype
    if isinstance(known, pd.StringDtype):
        return pa.large_string()
    plain = getattr(known, "numpy_dtype", known)  # nullable types have one
    is_number = isinstance(plain, np.dtype) and plain.kind in "iufb"
    return pa.from_numpy_dtype(plain) if is_number else None


def with_given_types(frame: pd.DataFrame, dtypes: Mapping[str, Any]) -> pd.DataFrame:
    """Return a frame whose columns have the types of the option `dtypes`, the same in value.

    Raises
    ------
    OptionError
        For a column that is not there, or a type that it cannot have.
    InputError
        When the conversion would change a value.

    """
    if not dtypes:
        return frame
    check_columns(list(dtypes), list(frame.columns), "dtypes")
    check_different(list(dtypes), list(frame.columns), "dtypes")
    typed = frame.copy(deep=False)
    for name, dtype in dtypes.items():
        column = frame[name]
        known = given_type(name, dtype, has_nulls=bool(column.isna().any()))
        try:
            typed[name] = converted(column, known)
        except (TypeError, ValueError, OverflowError) as error:
            msg = f"data: column {name!r} is {column.dtype} and cannot be read as {known}: {error}."
            raise InputError(msg) from error
    return typed


def converted(column: pd.Series, dtype: Any) -> pd.Series:
    """Return a column as another type; a value that changes on the way is an error."""
    changed: pd.Series = column.astype(dtype)
    if isinstance(column.dtype, pd.CategoricalDtype) and not isinstance(dtype, pd.CategoricalDtype):
        return changed
    is_there = column.notna()
    back = changed[is_there].astype(column.dtype)
    if not is_there.equals(changed.notna()) or not back.equals(column[is_there]):
        msg = "not every value fits"
        raise ValueError(msg)
    return changed
