"""The columns of delimited text and their types, fixed before the first mini-batch.

With a given type, pandas' parser is lenient: in a column of integers it takes ``True`` for 1, but
only where all cells of a piece are so, and it rounds 9007199254740993.0. Numbers and booleans are
hence parsed without a type, and the result is compared with the type that it should have.
"""

from __future__ import annotations

import io
import re
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.tseries.api import guess_datetime_format

from daskprs._arrow.arrow_pandas import EXACT
from daskprs._arrow.exact_casts import Asked
from daskprs._inputs.source.columns import check_columns
from daskprs._inputs.source.given_types import (
    arrow_type_of,
    converted,
    converted_text,
    is_moment,
    pandas_type,
)
from daskprs.errors import Option, OptionError

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

BOOL_OR_NULL = "bool or null"
TEXT = "str"
LARGE_INTEGERS = "integer of any size"
"""Integers beyond 64 bits are Python objects, as pandas has them."""
LARGEST_DIGITS = 38
"""Digits of the decimals that hold such integers in Arrow, and in polars."""
ANY = "any"
INTO = {"i": "iuf", "u": "iuf", "f": "iuf", "b": "iufb"}
"""Kinds of NumPy types, and the kinds of columns whose values may be theirs, too."""
INTEGER = re.compile(r" *[+-]?[0-9]+ *")
ISO = "ISO8601"


class TextColumn(NamedTuple):
    """One column: the type that its cells are parsed as, and the type that `fit` makes of them."""

    name: str
    parsed: Any
    """`TEXT`, a NumPy type of numbers or booleans, `BOOL_OR_NULL`, `LARGE_INTEGERS`, `ANY`, or a
    type of pandas."""
    final: Any = None
    """The type of the column, if it is another one than that of parsed cells."""
    date_format: str = ""
    is_whole: bool = False
    """Whether it has floats only because integers are null: it holds no integer beyond `EXACT`."""

    @property
    def is_plain(self) -> bool:
        """Whether it holds numbers or booleans of NumPy."""
        return isinstance(self.parsed, np.dtype) and self.parsed.kind in INTO

    @property
    def is_text(self) -> bool:
        """Whether it holds text."""
        return self.is_parsed_as(TEXT) and self.final is None

    def is_parsed_as(self, *types: str) -> bool:
        """Say whether cells are parsed as any of the types that are written as text."""
        return isinstance(self.parsed, str) and self.parsed in types

    @property
    def parser_type(self) -> Any:
        """The type that is passed to the parser; None if the parser infers it."""
        if self.is_parsed_as(LARGE_INTEGERS):
            return TEXT
        is_inferred = self.is_plain or self.is_parsed_as(BOOL_OR_NULL, ANY)
        return None if is_inferred else self.parsed

    def may_be_rounded(self, column: pd.Series) -> bool:
        """Say whether parsed cells are integers that pandas may have read by way of floats."""
        dtype = column.dtype
        is_nullable = not isinstance(dtype, np.dtype) and dtype.kind in "iu"
        is_suspect = is_nullable or (self.is_whole and dtype.kind in "iuf")
        return is_suspect and bool(((column >= EXACT) | (column <= -EXACT)).any())

    def check_written(self, cells: pd.Series, thousands: str | None) -> None:
        """Raise `ValueError` unless all cells of text are written as numbers that the type holds.

        A nullable integer is written as one, and where `is_whole`, none is too large for a float.
        """
        for cell in cells.dropna().astype(str):
            number = integer_in(cell, thousands)
            if (abs(number or 0) > EXACT) if self.is_whole else (number is None):
                _refuse(f"not exactly {self.kind}")

    @property
    def object_type(self) -> pa.DataType | None:
        """The type of Arrow for its Python objects; None if it has none, or of any kind."""
        if self.final is not None or not isinstance(self.parsed, str):
            return None
        return {
            BOOL_OR_NULL: pa.bool_(),
            LARGE_INTEGERS: pa.decimal128(LARGEST_DIGITS, 0),
            TEXT: pa.large_string(),
        }.get(self.parsed)

    @property
    def kind(self) -> str:
        """Its type, for people."""
        return str(self.parsed if self.final is None else self.final)

    @property
    def kind_and_format(self) -> str:
        """The type and date format, which its values depend on."""
        return f"{self.kind} as {self.date_format}" if self.date_format else self.kind

    @property
    def takes_null(self) -> bool:
        """Whether a cell may be empty."""
        return not self.is_plain or self.parsed.kind == "f"

    def fit(self, column: pd.Series) -> pd.Series:
        """Return parsed cells with their type; a cell that does not fit is any of `REFUSALS`."""
        if self.is_plain:
            column = _plain(column, self.parsed)
        elif self.is_parsed_as(BOOL_OR_NULL):
            column = _bool_or_null(column)
        elif self.is_parsed_as(LARGE_INTEGERS):
            column = _large_integers(column)
        if self.final is None:
            return column
        if isinstance(self.final, pd.CategoricalDtype):
            return _category(column, self.final)
        if self.date_format:
            return _dates(column, self.final, self.date_format)
        if self.final.kind == "m":
            return converted(pd.to_timedelta(column), self.final, Asked.DTYPES)
        return converted_text(column, self.final)

    def nulls(self, count: int) -> pd.Series:
        """Return the column of a file that does not have it."""
        dtype = self.parsed if self.final is None else self.final
        if isinstance(dtype, str) and dtype in (BOOL_OR_NULL, LARGE_INTEGERS, ANY):
            dtype = "object"
        nulls: pd.Series = pd.Series([np.nan] * count, dtype=dtype)
        return nulls


def integer_in(cell: str, thousands: str | None) -> int | None:
    """Return the integer that a cell is written as; None if it is written otherwise."""
    text = cell.replace(thousands or " ", "")
    return int(text) if INTEGER.fullmatch(text) else None


def are_integers(cells: pd.Series, thousands: str | None) -> bool:
    """Say whether all cells of text that are not null are written as integers."""
    text = cells.dropna()
    if thousands:
        text = text.str.replace(thousands, "", regex=False)
    return bool(text.str.fullmatch(INTEGER.pattern).all())


def _refuse(reason: str) -> None:
    raise ValueError(reason)


def _plain(column: pd.Series, want: np.dtype[Any]) -> pd.Series:
    """Return a column, whose type pandas has inferred, as numbers or booleans of another type."""
    have = column.dtype
    if column.empty or have == want:
        return column.astype(want)
    if not isinstance(have, np.dtype) or have.kind not in INTO[want.kind]:
        _refuse(f"{have} where {want} is expected")
    if want.kind != "f":
        is_far = have.kind == "f" and bool((column.abs() >= EXACT).any())
        if is_far or column.hasnans:
            _refuse(f"not exactly {want}")
    with np.errstate(over="ignore", invalid="ignore"):
        fitted: pd.Series = column.astype(want)
    if want.kind == "f":
        is_changed = np.isinf(fitted) & ~np.isinf(column.astype("float64"))
    else:
        # Between signed and unsigned integers of 64 bits, the way back would hide the change.
        is_changed = (fitted.astype(have) != column) | ((fitted < 0) != (column < 0))
    if is_changed.any():
        _refuse(f"beyond {want}")
    return fitted


def _bool_or_null(column: pd.Series) -> pd.Series:
    if column.dtype != bool and not all(isinstance(value, bool) for value in column.dropna()):
        _refuse("neither a boolean nor null")
    return column.astype(object).where(column.notna(), np.nan)


def _large_integers(column: pd.Series) -> pd.Series:
    cells: list[Any] = [np.nan if pd.isna(cell) else cell for cell in column]
    if not all(INTEGER.fullmatch(cell) for cell in cells if isinstance(cell, str)):
        _refuse("not an integer")
    whole = [int(cell) if isinstance(cell, str) else cell for cell in cells]
    return pd.Series(whole, column.index, dtype=object, name=column.name)


def _category(column: pd.Series, dtype: pd.CategoricalDtype) -> pd.Series:
    if not column.dropna().isin(dtype.categories).all():
        _refuse("none of the categories")
    return column.astype(dtype)


def _dates(column: pd.Series, dtype: Any, date_format: str) -> pd.Series:
    if column.isin(["now", "today"]).any():  # pandas takes them for the moment of reading
        _refuse("not a date")
    utc = getattr(dtype, "tz", None) is not None
    moments = pd.to_datetime(column, format=date_format, utc=utc)
    if not utc and moments.dt.tz is not None:
        _refuse("a time zone where none is expected")
    dates: pd.Series = moments.astype(dtype)
    if (dates.astype(moments.dtype) != moments)[moments.notna()].any():
        _refuse(f"finer than {dtype}")
    return dates


# ---- the types of all columns, from a sample ----

Schema = dict[str, TextColumn]
"""All columns of an input by name, in their order."""


def kept_as_text(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of dates: a sample has to keep their cells as they are written."""
    return {name: TEXT for name, dtype in given.items() if is_moment(_known(name, dtype))}


def schema_of(
    sample: pd.DataFrame,
    given: Mapping[str, Any],
    *,
    complete: bool,
    in_all: Container[str],
    whole: Container[str] = (),
    empty_as_string: bool = False,
) -> Schema:
    """Return the types that are given (the option `dtypes`), and else those that a sample suggests.

    A sample that is `complete` is the whole input: its types are those that pandas infers. Columns
    that are not `in_all` files are null in some. In those that are `whole`, the cells of the sample
    are null or written as integers. With `empty_as_string`, a column without values
    has the type text.
    """
    check_columns(list(given), list(sample.columns), "dtypes")
    schema: Schema = {}
    for name in sample.columns:
        if name in given:
            schema[name] = _given(name, given[name], sample[name])
        else:
            known = complete and not (empty_as_string and sample[name].isna().all())
            suggested = _suggested(sample[name], complete=known)
            parsed = suggested if name in in_all else _or_null(suggested)
            is_whole = name in whole and parsed == np.dtype("float64")
            schema[name] = TextColumn(name, parsed, is_whole=is_whole)
        if name not in in_all and not schema[name].takes_null:
            msg = (
                f": some files have no column {name!r}, and {schema[name].kind} holds no null. Say "
                "'Int64', 'boolean' or 'float64'."
            )
            raise OptionError(Option("dtypes"), msg)
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
        return _given_category(name, known)
    if is_moment(known):
        return TextColumn(name, TEXT, known, _date_format(sample.dropna()))
    if isinstance(known, np.dtype) and known.kind == "m":
        return TextColumn(name, TEXT, known)
    if isinstance(known, np.dtype) and known.kind in INTO:
        return TextColumn(name, known)
    _try_out(name, dtype)
    if isinstance(known, pd.PeriodDtype):
        return TextColumn(name, TEXT, known)
    return _given_of_arrow(name, dtype, arrow_type_of(known))


def _given_of_arrow(name: str, dtype: Any, arrow_type: pa.DataType | None) -> TextColumn:
    """Return a column of a type for which pandas' parser may be too lenient."""
    if arrow_type is not None and pa.types.is_time(arrow_type):
        return TextColumn(name, TEXT, _known(name, dtype))
    if arrow_type is not None and pa.types.is_floating(arrow_type):
        # A short float that is too large would be infinity. Of integers alone, pandas makes a
        # double of Arrow only where it is exact.
        return TextColumn(name, "Float64", _known(name, dtype))
    return TextColumn(name, dtype)


def _given_category(name: str, dtype: pd.CategoricalDtype) -> TextColumn:
    if getattr(dtype, "categories", None) is None:
        msg = (
            f": 'category', given for the column {name!r}, would have other categories in each "
            "mini-batch. Name them, which only Python can: pd.CategoricalDtype([...])."
        )
        raise OptionError(Option("dtypes"), msg)
    is_text = all(isinstance(category, str) for category in dtype.categories)
    return TextColumn(name, TEXT if is_text else ANY, dtype)


def _known(name: str, dtype: Any) -> Any:
    known = pandas_type(name, dtype)
    if str(known) in ("datetime64", "timedelta64"):
        msg = f": {dtype!r}, given for the column {name!r}, lacks its unit: say '{known}[ns]'."
        raise OptionError(Option("dtypes"), msg)
    return known


def _try_out(name: str, dtype: Any) -> None:
    """Refuse a type that pandas cannot make of text."""
    try:
        pd.read_csv(io.BytesIO(b"1\n"), header=None, names=[name], dtype={name: dtype})
    except (NotImplementedError, TypeError) as error:
        msg = (
            f": pandas cannot read {dtype!r}, given for the column {name!r}, from text: {error}. "
            "Say 'str' and convert it in run()."
        )
        raise OptionError(Option("dtypes"), msg) from error
    except ValueError:
        return  # a type that 1 does not fit


def _date_format(values: pd.Series) -> str:
    """Return the format by which the dates of all mini-batches are read.

    Without a format, pandas guesses from the first value of each piece: 01/02 would be January in
    one mini-batch and February in the next.
    """
    formats = [ISO]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the order of day and month, which is tried out
        for dayfirst in (False, True) if len(values) else ():
            guess = guess_datetime_format(str(values.iloc[0]), dayfirst=dayfirst)
            # Dates are not written as year, then day: such a guess comes from one misfit.
            if guess is not None and not guess.startswith("%Y"):
                formats.append(guess)
        for date_format in formats:
            if pd.to_datetime(values, format=date_format, errors="coerce", utc=True).notna().all():
                return date_format
    return formats[min(1, len(formats) - 1)]
