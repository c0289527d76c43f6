"""What stands on the two sides of a comparison, brought to one type."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd


class Unfit(ValueError):  # noqa: N818 - it says what is wrong
    """Two values that cannot be compared, or one that is no condition."""


def truth(value: Any, *, null: bool = False) -> Any:
    """Return conditions as booleans; what is null holds only where `null` says so."""
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
        With both types.

    """
    if isinstance(other, pd.Series) and not isinstance(one, pd.Series):
        flipped = aligned(other, one, right, left)
        return flipped[1], flipped[0]
    kind, against = _kind(one), _kind(other)
    if "any" in (kind, against) or kind == against != "date":
        return one, other
    if isinstance(one, pd.Series) and isinstance(other, str) and kind in {"number", "bool"}:
        return one, _read(other, kind, left)
    if {kind, against} == {"number", "bool"}:
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
    return "text" if isinstance(dtype, pd.StringDtype) else "any"


def _called(kind: str) -> str:
    return {"bool": "a boolean", "number": "a number", "date": "a date", "text": "text"}[kind]


def _read(text: str, kind: str, left: str) -> Any:
    try:
        if kind == "bool":
            return {"true": True, "false": False}[text.strip().lower()]
        try:
            return int(text)
        except ValueError:
            return float(text)
    except (KeyError, ValueError):
        msg = f"{left} is {_called(kind)}, and {text!r} is none"
        raise Unfit(msg) from None


def _same_zone(one: Any, other: Any, left: str) -> tuple[Any, Any]:
    """Return dates of which both or none have a time zone; without one they are UTC."""
    try:
        moment = pd.Timestamp(other) if isinstance(other, str) else other
    except ValueError:
        msg = f"{left} is a date, and {other!r} is none"
        raise Unfit(msg) from None
    return _as_zoned(one, like=moment), _as_zoned(moment, like=one)


def _as_zoned(value: Any, like: Any) -> Any:
    zone = _zone(value)
    if zone is not None or _zone(like) is None:
        return value
    return value.dt.tz_localize(UTC) if isinstance(value, pd.Series) else value.tz_localize(UTC)


def _zone(value: Any) -> Any:
    return getattr(value.dt if isinstance(value, pd.Series) else value, "tz", None)
