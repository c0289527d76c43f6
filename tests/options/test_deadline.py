"""A deadline is one moment, however it is written."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta, timezone
from typing import Any

import pytest

from daskprs import RunOptions


def deadline(value: Any) -> datetime:
    """Return the moment that an option means; it has a zone."""
    taken = RunOptions(deadline=value)["deadline"]
    assert RunOptions(deadline=taken)["deadline"] == taken
    moment = datetime.fromisoformat(taken)
    assert moment.tzinfo is not None
    return moment


@pytest.mark.parametrize("value", ["2h", "7200", 7200, 7200.0, "120 minutes", timedelta(hours=2)])
def test_a_duration_counts_from_the_call(value: Any) -> None:
    """In words, as seconds, or as Python has it."""
    before = datetime.now(UTC).replace(microsecond=0)
    assert timedelta(0) <= deadline(value) - before - timedelta(hours=2) < timedelta(minutes=1)


@pytest.mark.parametrize("write", [lambda at: at.time(), lambda at: at.strftime("%H:%M:%S")])
def test_a_time_of_day_is_the_next_one(write: Any) -> None:
    """That of today while it is to come, else that of tomorrow."""
    now = datetime.now().astimezone()
    for away in (timedelta(hours=3), timedelta(hours=-3)):
        moment = deadline(write((now + away).replace(microsecond=0)))
        assert timedelta(0) < moment - now < timedelta(hours=25)
        assert moment.time() == (now + away).replace(microsecond=0).time()


def test_a_moment_is_in_the_zone_of_this_machine_unless_it_says_another() -> None:
    """As text and as a datetime."""
    local = datetime(2040, 1, 31, 6, 30)  # noqa: DTZ001 - without a zone, as users write it
    assert deadline("2040-01-31T06:30") == deadline(local) == local.astimezone()
    east = datetime(2040, 1, 31, 6, 30, tzinfo=timezone(timedelta(hours=5)))
    assert deadline("2040-01-31 06:30:00+05:00") == deadline(east) == east
    assert deadline(time(6, 30)).time() == time(6, 30)


def test_there_may_be_none() -> None:
    """In a batch job, too."""
    assert RunOptions(deadline="never")["deadline"] == "never"
    assert RunOptions()["deadline"] is None
