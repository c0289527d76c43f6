"""The columns of delimited text and their types, fixed before the first mini-batch."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.tseries.api import guess_datetime_format

from daskprs.errors import Option, OptionError
from daskprs.inputs.delimited.column import (
    ANY,
    BOOL_OR_NULL,
    INTO,
    LARGE_INTEGERS,
    TEXT,
    TextColumn,
)
from daskprs.inputs.source.columns import check_columns

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

Schema = dict[str, TextColumn]
"""All columns of an input by name, in their order."""
ISO = "ISO8601"


def kept_as_text(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns whose cells a sample has to keep as they are written: dates."""
    return {name: TEXT for name, dtype in given.items() if _is_moment(_known(name, dtype))}


def schema_of(
    sample: pd.DataFrame,
    given: Mapping[str, Any],
    *,
    complete: bool,
    in_all: Container[str],
    empty_as_string: bool = False,
) -> Schema:
    """Return the types that a sample suggests, and those that were given.

    Parameters
    ----------
    sample
        Rows as pandas reads them.
    given
        The option `dtypes`.
    complete
        The sample is the whole input: its types are what pandas makes of it.
    in_all
        Columns that every file has; the others are null in some.
    empty_as_string
        Whether a column without values has the type text, not null.

    Raises
    ------
    OptionError
        For a column that is not there, or a type that it cannot have.

    """
    check_columns(list(given), list(sample.columns), "dtypes")
    schema: Schema = {}
    for name in sample.columns:
        if name in given:
            schema[name] = _given(name, given[name], sample[name])
        else:
            known = complete and not (empty_as_string and sample[name].isna().all())
            suggested = _suggested(sample[name], complete=known)
            schema[name] = TextColumn(name, suggested if name in in_all else _or_null(suggested))
        if name not in in_all and not schema[name].takes_null:
            told = f": some files have no column {name!r}, and {schema[name].kind} holds no null. "
            raise OptionError(Option("dtypes"), told, "Say 'Int64', 'boolean' or 'float64'.")
    return schema


def _suggested(column: pd.Series, *, complete: bool) -> Any:
    if column.empty and complete:
        return np.dtype(object)
    if column.isna().all():
        return np.dtype("float64") if complete else TEXT
    if column.dtype == object:
        values = set(map(type, column.dropna()))
        if values == {int}:
            return LARGE_INTEGERS
        return BOOL_OR_NULL if values == {bool} else TEXT
    return column.dtype if isinstance(column.dtype, np.dtype) else TEXT


def _or_null(suggested: Any) -> Any:
    """Return the type that pandas gives to a column with nulls in it."""
    if not isinstance(suggested, np.dtype) or suggested.kind not in INTO:
        return suggested
    return BOOL_OR_NULL if suggested.kind == "b" else np.dtype("float64")


def _given(name: str, dtype: Any, sample: pd.Series) -> TextColumn:
    known = _known(name, dtype)
    if isinstance(known, pd.CategoricalDtype):
        return _category(name, known)
    if _is_moment(known):
        return TextColumn(name, TEXT, known, _date_format(sample.dropna()))
    if isinstance(known, np.dtype) and known.kind == "m":
        return TextColumn(name, TEXT, known)
    if isinstance(known, np.dtype) and known.kind in INTO:
        return TextColumn(name, known)
    _try_out(name, dtype)
    return TextColumn(name, dtype)


def _category(name: str, dtype: pd.CategoricalDtype) -> TextColumn:
    if getattr(dtype, "categories", None) is None:
        told = f": 'category', given for the column {name!r}, would have other categories in each"
        raise OptionError(
            Option("dtypes"), told, " mini-batch. Name them: pd.CategoricalDtype([...])."
        )
    is_text = all(isinstance(category, str) for category in dtype.categories)
    return TextColumn(name, TEXT if is_text else ANY, dtype)


def _known(name: str, dtype: Any) -> Any:
    given = f": {dtype!r}, given for the column {name!r},"
    try:
        known = pd.api.types.pandas_dtype(dtype)
    except (TypeError, ValueError) as error:
        raise OptionError(Option("dtypes"), f"{given} is no type of pandas: {error}.") from error
    if str(known) in ("datetime64", "timedelta64"):
        raise OptionError(Option("dtypes"), f"{given} lacks its unit: say '{known}[ns]'.")
    return known


def _is_moment(dtype: Any) -> bool:
    if isinstance(dtype, pd.ArrowDtype):
        return bool(pa.types.is_date(dtype.pyarrow_dtype)) or dtype.kind == "M"
    return bool(pd.api.types.is_datetime64_any_dtype(dtype))


def _try_out(name: str, dtype: Any) -> None:
    """Refuse a type that pandas cannot make of text."""
    try:
        pd.read_csv(io.BytesIO(b"1\n"), header=None, names=[name], dtype={name: dtype})
    except (NotImplementedError, TypeError) as error:
        told = f": pandas cannot read {dtype!r}, given for the column {name!r}, from text: {error}."
        raise OptionError(Option("dtypes"), told, " Say 'str' and convert it in run().") from error
    except ValueError:
        return  # a type that 1 does not fit


def _date_format(values: pd.Series) -> str:
    """Return the one format that dates are read by, whatever mini-batch they lie in.

    Left to itself, pandas guesses from the first value of each piece: 01/02 would be January in
    one mini-batch and February in the next.
    """
    formats = [ISO]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the order of day and month, which is tried out
        for dayfirst in (False, True) if len(values) else ():
            guess = guess_datetime_format(str(values.iloc[0]), dayfirst=dayfirst)
            # Year, then day is not a real custom: such a guess comes from one misfit.
            if guess is not None and not guess.startswith("%Y"):
                formats.append(guess)
        for date_format in formats:
            if pd.to_datetime(values, format=date_format, errors="coerce", utc=True).notna().all():
                return date_format
    return formats[min(1, len(formats) - 1)]
