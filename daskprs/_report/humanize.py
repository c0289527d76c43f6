"""Numbers and text as people read them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from daskprs._core.spending import plain

if TYPE_CHECKING:
    from daskprs._core.spending import Amounts

MINUTE_S, HOUR_S, DAY_S = 60, 3_600, 86_400
KB, MB = 1 << 10, 1 << 20


def used(amounts: Amounts) -> str:
    """Return amounts for people: ``12,345 tokens_in, 0.5 dollars``."""
    return ", ".join(f"{plain(round(amount, 6)):,} {name}" for name, amount in amounts)


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 node``, ``1,200 files``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {_plural(noun)}"


def _plural(noun: str) -> str:
    return f"{noun}es" if noun.endswith(("ch", "s", "x")) else f"{noun}s"


def rounded(value: float) -> str:
    """Return a number with three digits, or all before the point: ``0.0123``, ``12,346``."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004 - it has three


def duration(seconds: float) -> str:
    """Return a duration in its two largest units: ``41 s``, ``3 min 5 s``, ``2 h 10 min``."""
    whole = round(seconds)
    if whole < MINUTE_S:
        return f"{whole} s"
    if whole < HOUR_S:
        return f"{whole // MINUTE_S} min {whole % MINUTE_S} s"
    if whole < DAY_S:
        return f"{whole // HOUR_S} h {whole % HOUR_S // MINUTE_S} min"
    return f"{whole // DAY_S} d {whole % DAY_S // HOUR_S} h"


def amount(size_bytes: int) -> str:
    """Return an amount of bytes in the unit that fits, of 1024: ``812 bytes``, ``1.2 GB``."""
    if size_bytes < KB:
        return counted(size_bytes, "byte")
    size = float(size_bytes)
    for unit in ("KB", "MB", "GB"):
        size /= KB
        if size < KB - 0.05:
            return f"{size:.1f} {unit}"
    return f"{size / KB:,.1f} TB"


MILLISECONDS = tuple(f".{number:03d}" for number in range(1000))


class Stamps:
    """Writes seconds since the epoch as UTC: a form of `strftime`, milliseconds, and a zone."""

    def __init__(self, form: str = "%Y-%m-%d %H:%M:%S", zone: str = "") -> None:
        self._form = form
        self._zone = zone
        self._second = -1
        self._text = ""

    def at(self, seconds: float) -> str:
        """Return the text of a point in time."""
        second = int(seconds)
        return self._of(second) + MILLISECONDS[int((seconds - second) * 1000)] + self._zone

    def exactly_at(self, seconds: float) -> str:
        """Return the text of a point in time, with microseconds."""
        second = int(seconds)
        more, microseconds = divmod(round((seconds - second) * 1e6), 1_000_000)
        return f"{self._of(second + more)}.{microseconds:06d}{self._zone}"

    def _of(self, second: int) -> str:
        if second != self._second:
            self._text = f"{datetime.fromtimestamp(second, UTC):{self._form}}"
            self._second = second
        return self._text


STEPS_S = (
    *(1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 35, 40, 45, 50),
    *(60 * minutes for minutes in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50)),
    *(3_600 * hours for hours in (1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 15, 18, 24)),
)
"""Rough durations in seconds; longer ones are in whole days."""


def rough_range(low_s: float, high_s: float) -> str:
    """Return a range of estimated seconds in rough steps: ``20–30 s``, ``50 s–2 min``, ``3 d``.

    It is never 0, as it is shown while something runs.
    """
    low, high = _rough(low_s), _rough(high_s)
    if low == high:
        return " ".join(low)
    first = low[0] if low[1] == high[1] else " ".join(low)
    return f"{first}–{' '.join(high)}"


def _rough(seconds: float) -> tuple[str, str]:
    """Return the nearest step, as a number and its unit."""
    if seconds > STEPS_S[-1]:
        return f"{max(2, round(seconds / DAY_S))}", "d"
    step = min(STEPS_S, key=lambda step: abs(step - max(1.0, seconds)))
    for unit_s, unit in ((HOUR_S, "h"), (MINUTE_S, "min")):
        if step >= unit_s:
            return f"{step / unit_s:g}", unit
    return f"{step:g}", "s"
