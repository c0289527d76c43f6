"""The type of a column of text: what its cells are parsed as, and what they become.

With a given type, pandas' parser is lenient: in a column of integers it takes ``True`` for 1, but
only where all cells of a piece are so, and it rounds 9007199254740993.0. Numbers and booleans are
hence parsed without a type, and the result is compared with the type that it should have.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

BOOL_OR_NULL = "bool or null"
TEXT = "str"
LARGE_INTEGERS = "integer of any size"
"""Integers beyond 64 bits are Python objects, as pandas has them."""
ANY = "any"
INTO = {"i": "iuf", "u": "iuf", "f": "iuf", "b": "iufb"}
"""Kinds of NumPy types, and the kinds of columns whose values may be theirs, too."""
INTEGER = re.compile(r" *[+-]?[0-9]+ *")
EXACT = 1 << 53
"""Bound up to which floats represent all integers exactly."""


class TextColumn(NamedTuple):
    """One column, and its type; `fit` makes the one of the other."""

    name: str
    parsed: Any
    """`TEXT`, a NumPy type of numbers or booleans, `BOOL_OR_NULL`, `LARGE_INTEGERS`, `ANY`, or a
    type of pandas."""
    final: Any = None
    """What cells become after they were parsed, if it is another type."""
    date_format: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether it holds numbers or booleans of NumPy."""
        return isinstance(self.parsed, np.dtype) and self.parsed.kind in INTO

    @property
    def is_text(self) -> bool:
        """Whether it holds text."""
        is_text = isinstance(self.parsed, str) and self.parsed == TEXT
        return is_text and self.final is None

    @property
    def is_bool_or_null(self) -> bool:
        """Whether it holds booleans among nulls, as Python objects."""
        return isinstance(self.parsed, str) and self.parsed == BOOL_OR_NULL

    @property
    def is_large(self) -> bool:
        """Whether it holds integers beyond 64 bits, as Python objects."""
        return isinstance(self.parsed, str) and self.parsed == LARGE_INTEGERS

    @property
    def told(self) -> Any:
        """The type that is passed to the parser; None if the parser infers it."""
        if self.is_large:
            return TEXT
        is_free = isinstance(self.parsed, str) and self.parsed in (BOOL_OR_NULL, ANY)
        return None if self.is_plain or is_free else self.parsed

    @property
    def kind(self) -> str:
        """Its type, for people."""
        return str(self.parsed if self.final is None else self.final)

    @property
    def told_apart(self) -> str:
        """All that its values depend on, for people."""
        return f"{self.kind} as {self.date_format}" if self.date_format else self.kind

    @property
    def takes_null(self) -> bool:
        """Whether a cell may be empty."""
        return not self.is_plain or self.parsed.kind == "f"

    def fit(self, column: pd.Series) -> pd.Series:
        """Return parsed cells with their type.

        Raises
        ------
        ValueError, TypeError, OverflowError
            When one does not fit.

        """
        if self.is_plain:
            column = _plain(column, self.parsed)
        elif self.is_bool_or_null:
            column = _bool_or_null(column)
        elif self.is_large:
            column = _large_integers(column)
        if self.final is None:
            return column
        if isinstance(self.final, pd.CategoricalDtype):
            return _category(column, self.final)
        if self.date_format:
            return _dates(column, self.final, self.date_format)
        spans: pd.Series = pd.to_timedelta(column).astype(self.final)
        return spans

    def nulls(self, count: int) -> pd.Series:
        """Return the column of a file that does not have it."""
        dtype = self.parsed if self.final is None else self.final
        is_free = isinstance(dtype, str) and dtype in (BOOL_OR_NULL, LARGE_INTEGERS, ANY)
        nulls: pd.Series = pd.Series([np.nan] * count, dtype="object" if is_free else dtype)
        return nulls


def _refuse(told: str) -> None:
    raise ValueError(told)


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
        is_changed = fitted.astype(have) != column
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
        _refuse("no integer")
    whole = [int(cell) if isinstance(cell, str) else cell for cell in cells]
    return pd.Series(whole, column.index, dtype=object, name=column.name)


def _category(column: pd.Series, dtype: pd.CategoricalDtype) -> pd.Series:
    if not column.dropna().isin(dtype.categories).all():
        _refuse("none of the categories")
    return column.astype(dtype)


def _dates(column: pd.Series, dtype: Any, date_format: str) -> pd.Series:
    if column.isin(["now", "today"]).any():  # pandas takes them for the moment of reading
        _refuse("no date")
    utc = getattr(dtype, "tz", None) is not None
    moments = pd.to_datetime(column, format=date_format, utc=utc)
    if not utc and moments.dt.tz is not None:
        _refuse("a time zone where none is expected")
    dates: pd.Series = moments.astype(dtype)
    if (dates.astype(moments.dtype) != moments)[moments.notna()].any():
        _refuse(f"finer than {dtype}")
    return dates
