"""Python objects that are times, which Arrow alone takes for microseconds of one zone."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pandas.api.types import infer_dtype

if TYPE_CHECKING:
    from collections.abc import Callable

OF_NUMPY: dict[type, Callable[[Any], Any]] = {
    np.datetime64: pd.Timestamp,
    np.timedelta64: pd.Timedelta,
}
"""The times of NumPy, and the classes of pandas that hold them."""
FINER = ("ps", "fs", "as")
"""Units of NumPy of which pandas would make nanoseconds."""


def as_times(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return a column whose objects are times with a type of pandas, which keeps nanoseconds.

    Raise `TypeError` when no one type holds the times: dates beside datetimes, of which Arrow would
    leave out the time of the day, or moments with and without a zone.
    """
    kind = infer_dtype(column) if column.dtype == object else ""
    if kind == "mixed" and not OF_NUMPY.keys().isdisjoint(map(type, column)):
        # Beside them, Arrow makes microseconds of nanoseconds, and a date of a duration.
        values = [*map(_of_pandas, column)]
        column = pd.Series(values, column.index, dtype=object, name=column.name)
        kind = infer_dtype(column)
    if kind in ("datetime", "timedelta"):
        inferred = column.infer_objects()
        if inferred.dtype == object:
            _check_one_type(column.dropna())
        return inferred
    if kind == "date" and column.map(lambda value: isinstance(value, dt.datetime)).any():
        msg = "dates and datetimes have no one type"
        raise TypeError(msg)
    return column


def _of_pandas(value: Any) -> Any:
    """Return a time of NumPy as one of pandas; leave all else as it is."""
    kind = OF_NUMPY.get(type(value))
    if kind is None:
        return value
    if np.datetime_data(value)[0] in FINER:
        msg = f"no type of pandas holds {value!r}"
        raise TypeError(msg)
    return kind(value)


def _check_one_type(times: pd.Series[Any]) -> None:
    """Refuse times that Arrow would change: it drops nanoseconds, and a zone beside none."""
    if len({getattr(value, "tzinfo", None) is None for value in times}) > 1:
        msg = "datetimes with and without a time zone have no one type"
        raise TypeError(msg)
    if any(getattr(value, "nanosecond", getattr(value, "nanoseconds", 0)) for value in times):
        msg = "no one type holds these nanoseconds beside times far away or of other zones"
        raise TypeError(msg)
