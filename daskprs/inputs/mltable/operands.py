"""The two sides of a comparison, converted to one type."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pandas as pd

_INT = re.compile(r"\s*[+-]?[0-9]+\s*")


class Unfit(ValueError):  # noqa: N818 - it says what is wrong
    """Two values cannot be compared, or a value is not a condition."""


def truth(value: Any, *, null: bool = False) -> Any:
    """Return conditions as booleans; a null counts as `null`."""
    if isinstance(value, bool | np.bool_):
        return np.bool_(value)
    if not isinstance(value, pd.Series):
        msg = f"{value!r} is no condition"
        raise Unfit(msg)
    if value.dtype == object:
        if not value.dropna().isin([True, False]).all():
            msg = f"column {value.name!r} is no condition: it does not hold booleans"
            raise Unfit(msg)
    elif not pd.api.types.is_bool_dtype(value.dtype):
        msg = f"column {value.name!r}, {value.dtype}, is no condition: compare it with something"
        raise Unfit(msg)
    return pd.Series(value.to_numpy(bool, na_value=null), value.index)


def aligned(one: Any, other: Any, left: str, right: str) -> tuple[Any, Any]:
    """Return two values so that they can be compared.

    Text is read as a number or a date where it is compared with a column of these.

    Raises
    ------
    Unfit
        When they cannot be compared; the error names both types.

    """
    one, other = _settled(one, left), _settled(other, right)
    if isinstance(other, pd.Series) and not isinstance(one, pd.Series):
        flipped = aligned(other, one, right, left)
        return flipped[1], flipped[0]
    kind, against = _kind(one), _kind(other)
    if kind == "decimal" and isinstance(other, str | int | float):
        return one, _decimal(other, left)
    if "any" in (kind, against) or kind == against != "date":
        return one, other
    if isinstance(one, pd.Series) and isinstance(other, str) and kind in {"number", "bool"}:
        return one, _read(other, kind, left)
    if {kind, against} in ({"number", "bool"}, {"number", "decimal"}):
        return one, other
    if kind == "date" and (against == "date" or isinstance(other, str)):
        return _same_zone(one, other, left)
    msg = (
        f"{left} is {_called(kind)} and {right} is {_called(against)}: they cannot be compared. "
        "convert_column_types before the filter gives a column another type"
    )
    raise Unfit(msg)


def datetime_of(values: list[Any]) -> pd.Timestamp:
    """Return the moment that `datetime(2024, 1, 31, 12)` names."""
    try:
        return pd.Timestamp(datetime(*values))  # noqa: DTZ001 - it takes the zone of its column
    except (TypeError, ValueError) as error:
        msg = f"it names no date: {error}"
        raise Unfit(msg) from None


def _settled(value: Any, name: str) -> Any:
    """Return a column of objects as a column of their real type.

    Objects and a text are never equal, so that a comparison would leave out all rows.
    """
    if isinstance(value, list):
        msg = f"{name} is a list, which stands on the right of in alone"
        raise Unfit(msg)
    if not isinstance(value, pd.Series) or value.dtype != object:
        return value
    kind = pd.api.types.infer_dtype(value, skipna=True)
    if kind in {"date", "datetime"}:
        return value.astype("datetime64[us]")
    if kind == "boolean":
        return value.astype("boolean")
    if kind not in OBJECTS:
        msg = f"{name} holds what cannot be compared: {kind}"
        raise Unfit(msg)
    return value


OBJECTS = {
    "empty": "any",
    "string": "text",
    "integer": "number",
    "floating": "number",
    "mixed-integer-float": "number",
    "decimal": "decimal",
}
"""Our kinds of values for the kinds that pandas infers in a column of objects."""
KINDS = {bool: "bool", int: "number", float: "number", str: "text", pd.Timestamp: "date"}


def _kind(value: Any) -> str:
    if not isinstance(value, pd.Series):
        return KINDS.get(type(value), "any")
    dtype = value.dtype
    if pd.api.types.is_bool_dtype(dtype):
        return "bool"
    if pd.api.types.is_numeric_dtype(dtype):
        return "number"
    if pd.api.types.is_datetime64_any_dtype(dtype):
        return "date"
    if value.dtype == object:
        return OBJECTS[pd.api.types.infer_dtype(value, skipna=True)]
    return "text" if isinstance(dtype, pd.StringDtype) else "any"


def _called(kind: str) -> str:
    return "text" if kind == "text" else f"a {'boolean' if kind == 'bool' else kind}"


def _read(text: str, kind: str, left: str) -> Any:
    try:
        if kind == "bool":
            return {"true": True, "false": False}[text.strip().lower()]
        return int(text) if _INT.fullmatch(text) else _float(text)
    except (KeyError, ValueError):
        raise _none(left, kind, text) from None


def _float(text: str) -> float:
    number = float(text)
    if math.isnan(number) or "_" in text:
        raise ValueError(text)
    return number


def _decimal(value: str | float, left: str) -> Decimal:
    """Return a number as it is written: 0.1 is a tenth."""
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        raise _none(left, "decimal", value) from None
    if number.is_nan():
        raise _none(left, "decimal", value)
    return number


def _none(left: str, kind: str, value: Any) -> Unfit:
    return Unfit(f"{left} is {_called(kind)}, and {value!r} is none")


def _same_zone(one: Any, other: Any, left: str) -> tuple[Any, Any]:
    """Return dates of which both or none have a time zone; without one they are UTC."""
    try:
        moment = _moment(other) if isinstance(other, str) else other
    except ValueError:
        raise _none(left, "date", other) from None
    return _as_zoned(one, like=moment), _as_zoned(moment, like=one)


def _moment(text: str) -> pd.Timestamp:
    moment = pd.Timestamp(text)
    if pd.isna(moment) or text.strip().lower() in {"now", "today"}:  # the moment of reading
        raise ValueError(text)
    return moment


def _as_zoned(value: Any, like: Any) -> Any:
    zone = _zone(value)
    if zone is not None or _zone(like) is None:
        return value
    return value.dt.tz_localize(UTC) if isinstance(value, pd.Series) else value.tz_localize(UTC)


def _zone(value: Any) -> Any:
    return getattr(value.dt if isinstance(value, pd.Series) else value, "tz", None)
