"""Durations in the form of ISO 8601, as clients of batch endpoints send timeouts."""

from __future__ import annotations

import math
import re
from decimal import Decimal

_AMOUNT = r"[0-9]{1,12}(?:[.,][0-9]{1,12})?"
_DURATION = re.compile(
    rf"P(?=.)(?:(?P<weeks>{_AMOUNT})W)?(?:(?P<days>{_AMOUNT})D)?"
    rf"(?:T(?=.)(?:(?P<hours>{_AMOUNT})H)?(?:(?P<minutes>{_AMOUNT})M)?(?:(?P<seconds>{_AMOUNT})S)?)?",
    re.ASCII,
)
_DATES = re.compile(r"P[^T]*[0-9][YM]")
SECONDS = {"weeks": 604_800, "days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}


def whole_seconds(text: str) -> int:
    """Return a duration such as ``P1DT2H30.5S`` in seconds, rounded up to a whole second.

    Years and months have no fixed length: they are a `ValueError`, as is any other text. Only the
    last part of a duration may have decimals.
    """
    if _DATES.match(text):
        msg = "Years and months have no fixed length; give weeks, days, hours, minutes or seconds"
        raise ValueError(msg)
    found = _DURATION.fullmatch(text)
    given = {} if found is None else {k: v for k, v in found.groupdict().items() if v is not None}
    *others, _ = [*given.values()] or ["", ""]
    if not given or any(re.search("[.,]", one) for one in others):
        msg = "Not a duration such as PT30S, PT1M30S or P1DT2H (ISO 8601)"
        raise ValueError(msg)
    amounts = (Decimal(one.replace(",", ".")) * SECONDS[unit] for unit, one in given.items())
    return math.ceil(sum(amounts))
