"""Column types that the caller gives for a table with types of its own."""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from daskprs._arrow.arrow_pandas import NO_NOTES, note, pandas_metadata, with_notes
from daskprs._arrow.exact_casts import MISFITS, Asked, checked_cast, is_text, no_cast, settled_type
from daskprs._arrow.object_times import as_times
from daskprs._inputs.source.columns import check_columns, check_different
from daskprs.errors import InputError, Option, OptionError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


def way_to_type(name: str, dtype: str | None = None) -> str:
    """Return how to give a column a type, for messages of agents: they know no front end."""
    of_python = "..." if dtype is None else repr(dtype)
    of_shell = shlex.quote(f"{name}={dtype or 'TYPE'}")
    return f"dtypes={{{name!r}: {of_python}}} (--dtype {of_shell} on the command line)"


def beside_nulls(name: str, number: int) -> str:
    """Return why text with nulls and an integer above 2**53 has no type, and which to give."""
    if -(1 << 63) <= number < 1 << 63:
        fitting = "Int64"
    else:
        fitting = "UInt64" if 0 < number < 1 << 64 else "str"
    return (
        "Where integers are null, pandas has floats, which cannot hold all of them exactly. Say "
        f"{way_to_type(name, fitting)}."
    )


def pandas_type(name: str, dtype: Any, option: str = "dtypes") -> Any:
    """Return the type of pandas that an option gives for a column."""
    try:
        return pd.api.types.pandas_dtype(dtype)
    except (NotImplementedError, TypeError, ValueError) as error:
        way = " Give pd.ArrowDtype(...) of it." if isinstance(dtype, pa.DataType) else ""
        msg = f": {dtype!r}, given for the column {name!r}, is not a type of pandas: {error}.{way}"
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


def is_moment(dtype: Any) -> bool:
    """Say whether the values of a type of pandas are dates or moments."""
    if isinstance(dtype, pd.ArrowDtype):
        return bool(pa.types.is_date(dtype.pyarrow_dtype)) or dtype.kind == "M"
    return bool(pd.api.types.is_datetime64_any_dtype(dtype))


def arrow_type_of(known: Any) -> pa.DataType | None:
    """Return the type of Arrow that holds the values of a type of pandas; None if none does."""
    if isinstance(known, pd.ArrowDtype):
        return known.pyarrow_dtype
    if isinstance(known, pd.StringDtype) or _is_text_of_objects(known):
        return pa.large_string()
    plain = getattr(known, "numpy_dtype", known)  # nullable types have one
    if isinstance(plain, np.dtype) and plain.kind in "iufb":
        with suppress(pa.ArrowException):  # some floats are longer than those of Arrow
            return pa.from_numpy_dtype(plain)
    return None


def _is_text_of_objects(known: Any) -> bool:
    """Say whether a type is ``str`` as pandas has it before version 3: text as Python's objects."""
    return isinstance(known, np.dtype) and known.kind == "U"


def any_arrow_type_of(known: Any) -> pa.DataType | None:
    """Return the type of Arrow that holds the values of a type, moments and spans among them."""
    if isinstance(known, pd.CategoricalDtype):
        return pa.array(known.categories).type
    if isinstance(known, pd.DatetimeTZDtype):
        return pa.timestamp(known.unit, str(known.tz))
    if isinstance(known, np.dtype) and known.kind in "mM":
        with suppress(pa.ArrowException):  # Arrow has no type of days
            return pa.from_numpy_dtype(known)
    return arrow_type_of(known)


def check_cast(name: str, there: pa.DataType | None, known: Any) -> None:
    """Refuse a type of the option `dtypes` to which values of a column are never cast."""
    wanted = any_arrow_type_of(known)
    if there is None or wanted is None:
        return
    if settled_type(wanted, there, Asked.DTYPES) is None:
        msg = (
            f": {str(known)!r}, given for the column {name!r}: {no_cast(there, wanted)}. Leave "
            f"{name!r} out of dtypes, and convert the column in run()."
        )
        raise OptionError(Option("dtypes"), msg)


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
    pandas = pandas_metadata(schema) or NO_NOTES
    notes = [one for one in pandas["columns"] if one["field_name"] not in dtypes]
    for name, dtype in dtypes.items():
        known = given_type(name, dtype, has_nulls=name in with_nulls)
        place = schema.names.index(name)
        check_cast(name, schema.field(place).type, known)
        schema = schema.set(place, pa.field(name, arrow_type_of(known)))
        notes.append(note(name, known))
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
            typed[name] = converted(column, known, Asked.DTYPES)
        except MISFITS as error:
            msg = (
                f"data: column {name!r} is {column.dtype} and cannot be read as {known}: {error}. "
                f"Leave {name!r} out of dtypes, and convert the column in run()."
            )
            raise InputError(msg) from error
    return typed


TIME = r"^\d\d:\d\d(:\d\d(\.\d{1,9})?)?$"
"""A time of day without a zone."""
ISO_DATE = re.compile(
    r"\d{8}|\d{4}(-\d\d(-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?)?)?)?",
    re.ASCII,
)
"""A moment without a zone, as ISO 8601 writes it, or its first parts."""


def converted(column: pd.Series, dtype: Any, asked: Asked = Asked.NOT) -> pd.Series:
    """Return a column as another type; a value that would change is any of `MISFITS`.

    The table of `daskprs._arrow.exact_casts` says what may be cast. Python objects hold any value.
    """
    if pd.api.types.is_object_dtype(dtype):
        return column.astype(object)
    try:
        values = _as_arrow(column)
        wanted = any_arrow_type_of(dtype)
    except MISFITS:
        wanted = None
    if wanted is None:
        return _as_same_objects(column, dtype)
    fitted = checked_cast(values, wanted, asked)
    if isinstance(dtype, pd.CategoricalDtype):
        return _as_categories(fitted, column, dtype)
    if is_text(wanted) and _holds_numbers(values):
        # pandas writes 1.0, and Arrow 1: text of a frame is written as its owner knows it.
        text = column.astype(dtype)
        if _is_text_of_objects(dtype):  # which has the text "nan" for a null
            return text.where(column.notna(), None)
        return _with_all_nulls(column, text)
    return _as_pandas(fitted, column, dtype)


def converted_text(column: pd.Series, dtype: Any) -> pd.Series:
    """Return cells of text as the type that the option `dtypes` gives them.

    It is `converted` with times and periods, which are read from text alone. pandas reads these,
    too, but leaves out what does not fit: a zone, parts of a second, the day of a month.
    """
    if isinstance(dtype, pd.PeriodDtype):
        return _as_periods(column, dtype)
    if isinstance(dtype, pd.ArrowDtype) and pa.types.is_time(dtype.pyarrow_dtype):
        return _as_pandas(_as_times_of_day(column, dtype.pyarrow_dtype), column, dtype)
    return converted(column, dtype, Asked.DTYPES)


def _as_times_of_day(column: pd.Series, type_: pa.DataType) -> pa.ChunkedArray:
    text = pa.array(column, pa.string(), from_pandas=True)
    is_time = pc.match_substring_regex(text, TIME)
    if not pc.all(is_time, min_count=0).as_py():
        msg = f"not every text is a time of day, got {text.filter(pc.invert(is_time))[0].as_py()!r}"
        raise ValueError(msg)
    moments = pc.binary_join_element_wise("1970-01-01", text, " ").cast(pa.timestamp("ns"))
    return checked_cast(pa.chunked_array([moments.cast(pa.time64("ns"))]), type_, Asked.NOT)


def _as_periods(column: pd.Series, dtype: pd.PeriodDtype) -> pd.Series:
    made = _with_all_nulls(column, column.astype(dtype))
    for text, period in zip(column[column.notna()], made.dropna(), strict=True):
        if text in (str(period), str(period).replace("Q", "-Q")):
            continue
        # Of other forms, pandas guesses which number of 03/02/2020 is the month.
        if not ISO_DATE.fullmatch(text) or pd.Timestamp(text) != period.start_time:
            msg = f"{text!r} is not how a period of the type {dtype}, or its beginning, is written"
            raise ValueError(msg)
    return made


def _as_arrow(column: pd.Series) -> pa.ChunkedArray:
    if column.isna().all():  # pd.read_csv makes floats of an empty column
        return pa.chunked_array([pa.nulls(len(column))])
    values = pa.array(as_times(column), from_pandas=True)
    return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])


def _holds_numbers(values: pa.ChunkedArray) -> bool:
    if pa.types.is_null(values.type):
        return False
    type_ = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    return settled_type(pa.float64(), type_) is not None or pa.types.is_boolean(type_)


def _as_pandas(values: pa.ChunkedArray, column: pd.Series, dtype: Any) -> pd.Series:
    if not isinstance(dtype, np.dtype):
        return pd.Series(dtype.__from_arrow__(values), column.index, name=column.name)
    if dtype.kind in "iub" and values.null_count:
        msg = f"{values.null_count} of the values are null, which {dtype} does not hold"
        raise ValueError(msg)
    of_values = object if _is_text_of_objects(dtype) else dtype
    return pd.Series(values.to_numpy(), column.index, of_values, name=column.name)


def _as_categories(
    values: pa.ChunkedArray, column: pd.Series, dtype: pd.CategoricalDtype
) -> pd.Series:
    codes = pc.index_in(values, pa.array(dtype.categories, values.type))
    coded = pd.Categorical.from_codes(codes.fill_null(-1).to_numpy(), dtype=dtype)
    return _with_all_nulls(column, pd.Series(coded, column.index, name=column.name))


def _with_all_nulls(column: pd.Series, changed: pd.Series) -> pd.Series:
    if not column.notna().equals(changed.notna()):
        msg = "not every value fits"
        raise ValueError(msg)
    return changed


def _as_same_objects(column: pd.Series, dtype: Any) -> pd.Series:
    """Convert what no type of Arrow holds (periods, say), if all stay the same Python objects."""
    changed = _with_all_nulls(column, column.astype(object).astype(dtype))
    is_there = column.notna()
    for one, other in zip(
        column[is_there].astype(object), changed[is_there].astype(object), strict=True
    ):
        if type(one) is not type(other) or one != other:
            msg = f"a value would change, got {one!r}, which becomes {other!r}"
            raise ValueError(msg)
    return changed
