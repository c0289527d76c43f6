"""Column types that the caller gives for a table with types of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from daskprs.arrow.arrow_pandas import pandas_metadata, with_notes
from daskprs.errors import InputError, Option, OptionError
from daskprs.inputs.source.columns import check_columns, check_different

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


def pandas_type(name: str, dtype: Any, option: str = "dtypes") -> Any:
    """Return the type of pandas that an option gives for a column."""
    try:
        return pd.api.types.pandas_dtype(dtype)
    except (TypeError, ValueError) as error:
        msg = f": {dtype!r}, given for the column {name!r}, is not a type of pandas: {error}."
        raise OptionError(Option(option), msg) from error


def given_type(name: str, dtype: Any, *, has_nulls: bool = False) -> Any:
    """Return the requested pandas type, to which values of a table can be converted."""
    known = pandas_type(name, dtype)
    given = f": {dtype!r}, given for the column {name!r},"
    if arrow_type_of(known) is None:
        msg = (
            f"{given} is none of the types that a table with types of its own is converted to "
            "(numbers, booleans, text, types of Arrow). Convert the column in run()."
        )
        raise OptionError(Option("dtypes"), msg)
    if has_nulls and isinstance(known, np.dtype) and known.kind in "iub":
        msg = (
            f"{given} holds no null, and the column has some. Say 'Int64', 'boolean' or 'float64'."
        )
        raise OptionError(Option("dtypes"), msg)
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


def with_dtypes(
    schema: pa.Schema, dtypes: Mapping[str, Any], with_nulls: Collection[str]
) -> pa.Schema:
    """Return a schema in which columns have the types of the option `dtypes`.

    Each type is noted as pandas notes the types of the columns that it writes: the conversion into
    a frame reads the note.
    """
    if not dtypes:
        return schema
    check_columns(list(dtypes), schema.names, "dtypes")
    pandas = pandas_metadata(schema) or {"index_columns": [], "column_indexes": []}
    notes = [one for one in pandas.get("columns", ()) if one["field_name"] not in dtypes]
    for name, dtype in dtypes.items():
        known = given_type(name, dtype, has_nulls=name in with_nulls)
        schema = schema.set(schema.names.index(name), pa.field(name, arrow_type_of(known)))
        note = {"name": name, "field_name": name, "metadata": None}
        notes.append(note | {"pandas_type": str(known), "numpy_type": str(known)})
    return with_notes(schema, pandas | {"columns": notes})


def with_given_types(frame: pd.DataFrame, dtypes: Mapping[str, Any]) -> pd.DataFrame:
    """Return a frame whose columns have the types of the option `dtypes`.

    A conversion that would change a value is an `InputError`.
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
    """Return a column as another type; a value that would change is a `ValueError`."""
    if isinstance(column.dtype, pd.CategoricalDtype) and not isinstance(dtype, pd.CategoricalDtype):
        values = column.dtype.categories.dtype
        # Beside nulls, integers would be floats.
        column = column.astype(object if values.kind in "iub" else values)
    changed: pd.Series = column.astype(dtype)
    is_there = column.notna()
    back = changed[is_there].astype(column.dtype)
    if not is_there.equals(changed.notna()) or not back.equals(column[is_there]):
        msg = "not every value fits"
        raise ValueError(msg)
    return changed
