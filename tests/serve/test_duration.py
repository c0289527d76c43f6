"""Durations as clients send them."""

from __future__ import annotations

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskprs.serve.duration import SECONDS, whole_seconds

LETTERS = {"weeks": "W", "days": "D", "hours": "H", "minutes": "M", "seconds": "S"}
OF_TIME = ("hours", "minutes", "seconds")


@given(st.dictionaries(st.sampled_from([*LETTERS]), st.integers(0, 10**9), min_size=1))
def test_every_duration_has_its_seconds(amounts: dict[str, int]) -> None:
    """In the order of ISO 8601, with any of the parts."""
    parts = {
        unit: f"{amounts[unit]}{letter}" for unit, letter in LETTERS.items() if unit in amounts
    }
    date = "".join(part for unit, part in parts.items() if unit not in OF_TIME)
    time = "".join(part for unit, part in parts.items() if unit in OF_TIME)
    text = f"P{date}T{time}" if time else f"P{date}"
    assert whole_seconds(text) == sum(SECONDS[unit] * one for unit, one in amounts.items())


@given(st.text(alphabet="PTWDHMSY0123456789.,-+ \n٣"))
def test_other_texts_are_refused(text: str) -> None:
    """Nothing else is raised, and what is taken is a number of seconds."""
    seconds = None
    with suppress(ValueError):
        seconds = whole_seconds(text)
    if seconds is not None:
        assert text.startswith("P")
        assert seconds >= 0
        assert not set(text) & set("Y-+ \n٣")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("PT30S", 30), ("P1DT2H", 93_600), ("PT1.5M", 90), ("PT0,5S", 1), ("PT59.000000001S", 60)],
)
def test_decimals_are_rounded_up_to_whole_seconds(text: str, seconds: int) -> None:
    """With a point or a comma."""
    assert whole_seconds(text) == seconds == math.ceil(seconds)


@pytest.mark.parametrize(
    "text", ["P", "PT", "P1DT", "1S", "PT1.5M2S", "PT1S\n", "P1M", "P1Y", "pt1s"]
)
def test_halves_of_durations_are_none(text: str) -> None:
    """A month has no length."""
    with pytest.raises(ValueError, match=r"ISO 8601|no fixed length"):
        whole_seconds(text)
