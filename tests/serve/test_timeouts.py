"""Timeouts as clients send them: numbers, and durations in the form of ISO 8601."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from daskprs._serve.bodies import Timeout

TIMEOUT = TypeAdapter(Timeout)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(30, 30), ("PT30S", 30), ("P1DT2H", 93_600), ("PT1.5M", 90), ("PT0,5S", 1), ("PT59.001S", 60)],
)
def test_a_duration_is_rounded_up_to_whole_seconds(given: object, seconds: int) -> None:
    """With a point or a comma."""
    assert TIMEOUT.validate_python(given) == seconds


@pytest.mark.parametrize(
    "given",
    ["P", "PT", "1S", "PT1.5M2S", "PT1S\n", "pt1s", "P4D", "-PT1S", "PT٣S", f"PT{9**99}S"],
)
def test_other_texts_are_refused(given: str) -> None:
    """And what is longer than three days, or no time at all."""
    with pytest.raises(ValidationError):
        TIMEOUT.validate_python(given)


@pytest.mark.parametrize("given", ["P1M", "P1Y", "P0Y1D", "P1MT1S"])
def test_years_and_months_have_no_length(given: str) -> None:
    """A minute stands after a T."""
    with pytest.raises(ValidationError, match="no fixed length"):
        TIMEOUT.validate_python(given)
