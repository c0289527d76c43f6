"""Rules for the times among the options: timeouts, intervals, delays and the deadline."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from datetime import time as clock_time
from typing import Any

from daskprs._options.rules import is_number, plain_number, refused

LONGEST_S = 259_200
"""Maximum timeout in seconds: three days, as in Azure's v2 schema."""
EXPONENTIAL = "exponential"
NEVER = "never"
"""The deadline of a job without one, also in a batch job."""
IN_WORDS = 'in words as Dask has them, such as "90s", "5m" or "2 hours"'


def check_seconds(name: str, value: Any) -> Any:
    """Return a timeout in seconds; reject values other than one."""
    seconds = _seconds(value)
    if seconds is None or not 0 < seconds <= LONGEST_S:
        rule = f"a number of seconds above 0, at most {LONGEST_S}, or a time {IN_WORDS}"
        raise refused(name, value, rule)
    return seconds


def check_deadline(name: str, value: Any) -> str:
    """Return a time as text of ISO 8601 with its zone, or the word for none; reject others.

    Seconds, also in words, count from now. A time of day is the next one, in the zone of this
    process, as is a time without a zone.
    """
    if value == NEVER:
        return NEVER
    now = datetime.now().astimezone()
    at = value if isinstance(value, (datetime, clock_time)) else None
    seconds = value.total_seconds() if isinstance(value, timedelta) else None
    if isinstance(value, str):
        with suppress(ValueError):
            at = clock_time.fromisoformat(value) if ":" in value[:3] else _moment(value)
    if at is None and seconds is None:
        seconds = _seconds(value)
    if isinstance(at, clock_time):
        at = datetime.combine(now, at)
        at += timedelta(days=at.astimezone() <= now)
    elif seconds is not None and 0 < seconds <= LONGEST_S:
        at = now + timedelta(seconds=seconds)
    if at is None:
        rule = (
            f"a number of seconds above 0, at most {LONGEST_S}, a time {IN_WORDS}, a time of day "
            f'such as "06:30", a time such as "2030-01-31T06:30", or {NEVER!r}'
        )
        raise refused(name, value, rule)
    return at.astimezone().isoformat(timespec="milliseconds")


def _moment(text: str) -> datetime | None:
    """Return a date with a time; None for anything else, such as a number of seconds."""
    return datetime.fromisoformat(text) if "-" in text and ":" in text else None


def check_delay(name: str, value: Any) -> Any:
    """Return a delay in seconds, 0 for none, or the word for one that grows; reject others."""
    if value == EXPONENTIAL:
        return value
    seconds = _seconds(value)
    if seconds is None or not 0 <= seconds <= LONGEST_S:
        rule = f"a number of seconds from 0 to {LONGEST_S}, a time {IN_WORDS}, or {EXPONENTIAL!r}"
        raise refused(name, value, rule)
    return seconds


def check_interval(name: str, value: Any) -> Any:
    """Return an interval in seconds, or 0 for none; reject other values."""
    seconds = _seconds(value)
    if seconds is None or (seconds != 0 and not 1 <= seconds <= LONGEST_S):
        rule = f"0, or a number of seconds from 1 to {LONGEST_S}, or a time {IN_WORDS}"
        raise refused(name, value, rule)
    return seconds


def _seconds(value: Any) -> int | float | None:
    """Return seconds that are a number or words; None for anything else."""
    if isinstance(value, str):
        from dask.utils import parse_timedelta

        try:
            value = parse_timedelta(value, default="seconds")
        except (KeyError, ValueError, IndexError, OverflowError):
            return None
    return plain_number(value) if is_number(value) else None
