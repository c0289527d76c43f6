"""Columns that become another type: exactly, or not at all."""

from __future__ import annotations

import re
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from daskprs._inputs.source.input_file import is_url
from daskprs.azure._mltable.place import resolved

INT = re.compile(r"[+-]?[0-9]+")
PLAIN = {
    "int": r"-?(?:[0-9]{1,18}|[1-8][0-9]{18})",
    "float": r"-?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?",
}
"""Text that pandas converts exactly, a whole column at once."""
EXACT = 1 << 53
"""Bound up to which floats represent all integers exactly."""
TRUE: tuple[str, ...] = ("true", "1")
FALSE: tuple[str, ...] = ("false", "0")
"""The default texts of booleans, in upper or lower case."""
MOST_DIGITS = 20
"""Digits of a 64-bit integer, and one more."""
ISO = "ISO8601"
TEXT = "str"


class ConversionError(ValueError):
    """A value that does not become the type of its column."""

    def __init__(self, row: int, told: str) -> None:
        super().__init__(row, told)
        self.row = row
        """Its label in the index."""
        self.told = told


class Conversion(NamedTuple):
    """The conversion of one column."""

    column: str
    kind: str
    """``int``, ``float``, ``string``, ``boolean``, ``datetime`` or ``stream_info``."""
    is_nullable: bool = False
    """Whether there are nulls among the values."""
    true_values: tuple[str, ...] = ()
    false_values: tuple[str, ...] = ()
    mismatch_as: str = "error"
    formats: tuple[str, ...] = ()
    date_constant: str | None = None
    folder: str = ""
    """The folder that relative paths of a ``stream_info`` start from."""

    def apply(self, cells: pd.Series) -> pd.Series:
        """Return a column with its new type.

        A value that does not become one, or a null where the type has none, is a ConversionError.
        """
        if self.kind == "datetime":
            return self._dates(cells)
        dtypes: dict[str, Any] = {
            "int": "float64" if self.is_nullable else "int64",
            "float": "float64",
            "boolean": object if self.is_nullable else bool,
        }
        dtype = dtypes.get(self.kind, TEXT)
        if self._is_plain(cells):
            plain: pd.Series = cells.astype(dtype)
            return plain
        values = [self._cell(*item) for item in zip(cells.index, cells.tolist(), strict=True)]
        if self.kind == "boolean":
            values = [np.nan if value is None else value for value in values]
        typed: pd.Series = pd.Series(values, cells.index, dtype=dtype, name=cells.name)
        return typed

    def _is_plain(self, cells: pd.Series) -> bool:
        """Say whether pandas converts the column as a whole as `_cell` converts each cell."""
        if self.kind == "string":
            return bool(cells.dtype == TEXT)
        is_text = isinstance(cells.dtype, pd.StringDtype)
        if not is_text or self.kind not in PLAIN or (self.kind == "int" and self.is_nullable):
            return False
        return bool(cells.str.fullmatch(PLAIN[self.kind], na=False).all())

    def _cell(self, row: int, value: Any) -> Any:
        """Return one value; None for null."""
        if _is_null(value):
            if self.kind in {"int", "boolean"} and not self.is_nullable:
                told = f"nothing, and {self.kind} holds no null: there was none in the samples"
                raise ConversionError(row, told)
            return None
        try:
            return getattr(self, f"_{self.kind}")(value)
        except (ValueError, ArithmeticError, TypeError):
            raise ConversionError(row, f"{_shown(value)}, which is no {self.kind}") from None

    def _int(self, value: Any) -> int:
        if isinstance(value, str):
            text = value.strip()
            number: Any = int(text) if INT.fullmatch(text) else _decimal(text)
        else:
            number = value
        whole = int(number)
        is_beyond = abs(whole) > EXACT if self.is_nullable else not -(1 << 63) <= whole < 1 << 63
        if whole != number or is_beyond or isinstance(value, date):
            raise ValueError
        return whole

    def _float(self, value: Any) -> float:
        return _float(value.strip()) if isinstance(value, str) else float(value)

    def _string(self, value: Any) -> str:
        if isinstance(value, datetime):
            return value.isoformat()
        return str(value)

    def _boolean(self, value: Any) -> bool:
        text = _text_of(value)
        if not self.true_values and not self.false_values:
            true, false, text = TRUE, FALSE, text.strip().lower()
        else:
            true, false = self.true_values, self.false_values
        if text in true or text in false:
            return text in true
        if isinstance(value, bool | np.bool_) and text.lower() in (*true, *false):
            return text.lower() in true
        if self.mismatch_as == "error":
            raise ValueError
        return self.mismatch_as == "true"

    def _stream_info(self, value: Any) -> str:
        if not isinstance(value, str):
            raise TypeError
        return value if is_url(value) and not self.folder else resolved(value, self.folder)

    def _dates(self, cells: pd.Series) -> pd.Series:
        """Return dates, each parsed by the first format that fits."""
        is_zoned = any("%z" in one or "%Z" in one for one in self.formats)
        dtype = "datetime64[us, UTC]" if is_zoned else "datetime64[us]"
        if pd.api.types.is_datetime64_any_dtype(cells.dtype):
            return _moved(cells, dtype)
        values = [None if _is_null(value) else _text_of(value) for value in cells]
        texts = pd.Series(values, cells.index, dtype=object)
        found = pd.Series(pd.NaT, cells.index, dtype=dtype)
        for one in self.formats or (ISO,):
            left = found.isna() & texts.notna()
            if left.any():
                found = found.fillna(_moved(self._read(texts[left], one), dtype))
        lost = found.isna() & texts.notna()
        if lost.any():
            row = cells.index[int(lost.to_numpy().argmax())]
            known = ", ".join(self.formats) or "ISO 8601"
            told = f"{_shown(cells[row])}, which is not a date in the form {known}"
            raise ConversionError(int(row), told)
        return found

    def _read(self, texts: pd.Series, date_format: str) -> pd.Series:
        if self.date_constant is not None:
            texts = self.date_constant + " " + texts
            date_format = f"%Y-%m-%d {date_format}"
        utc = date_format == ISO or "%z" in date_format or "%Z" in date_format
        usable = texts.mask(texts.isin(["now", "today"]))  # the moment of reading, to pandas
        moments = pd.to_datetime(usable, format=date_format, errors="coerce", utc=utc)
        return pd.Series(moments, texts.index)


def _is_null(value: Any) -> bool:
    return value is None or value is pd.NA or value is pd.NaT or value != value  # noqa: PLR0124


def _float(text: str) -> float:
    if "_" in text:
        raise ValueError
    return float(text)


def _decimal(text: str) -> Decimal:
    """Return the exact number; a float would keep only sixteen digits."""
    number = Decimal(text)
    if "_" in text or number.adjusted() > MOST_DIGITS:
        raise ValueError
    return number


def _text_of(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # 1, where a null beside it has made it 1.0
    return str(value)


def _moved(dates: pd.Series, dtype: str) -> pd.Series:
    """Return dates in another unit and zone; without a zone they are UTC."""
    has_zone = dates.dt.tz is not None
    if has_zone and "UTC" not in dtype:
        dates = dates.dt.tz_convert("UTC").dt.tz_localize(None)
    if not has_zone and "UTC" in dtype:
        dates = dates.dt.tz_localize("UTC")
    as_type: Any = dtype
    moved: pd.Series = dates.astype(as_type)
    return moved


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."  # noqa: PLR2004 - what fits a line
