"""Dates as `DataFrame.to_csv` writes them: with no more digits than the most exact one needs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
DAY_S = 86_400
FIRST_S, LAST_S = -30_610_224_000, 253_402_300_799
"""Seconds since 1970 of the years from 1000 to 9999: of others Arrow and pandas write more, or
fewer, digits."""
NOT_A_TIME = np.iinfo(np.int64).min


def date_text(values: np.ndarray[Any, Any]) -> Any:
    """Format an array of ``datetime64``: a ``large_string`` array, or None for odd years."""
    unit = coarsest_unit(values)
    if unit is None:
        return None
    kind = pa.date32() if unit == "D" else pa.timestamp(unit)
    return pa.array(values).cast(kind).cast(pa.large_string())


def coarsest_unit(values: np.ndarray[Any, Any]) -> str | None:
    """Return the unit that all dates are written with: a day if all are midnights.

    Returns
    -------
    str or None
        ``"D"``, ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``; None where years have no four digits.

    """
    unit, _ = np.datetime_data(values.dtype)
    per_second = UNITS[unit]
    ticks = values.view(np.int64)
    known = ticks[ticks != NOT_A_TIME]
    if not len(known):
        return "D"
    if int(known.min()) < FIRST_S * per_second or int(known.max()) > LAST_S * per_second:
        return None
    if not (known % (DAY_S * per_second)).any():
        return "D"
    return next(
        name
        for name, per in UNITS.items()
        if per >= per_second or not (known % (per_second // per)).any()
    )
