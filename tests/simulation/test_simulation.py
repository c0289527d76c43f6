"""Jobs on a virtual clock: whatever dies, each promise holds."""

from __future__ import annotations

import pytest

from tests.simulation.simulate import seeds_played

SEEDS = 100
GROUP = 10
"""Seeds that one test plays: test workers share them."""


@pytest.mark.parametrize("first", range(0, SEEDS, GROUP))
def test_no_seed_breaks_a_promise(first: int) -> None:
    """A seed that does is shrunk by `make sim REPLAY=…`."""
    assert seeds_played(first, GROUP).violations == []


def test_a_seed_is_the_same_each_time() -> None:
    """What was found is found again."""
    one, other = (seeds_played(3, 2) for _ in range(2))
    assert one.counts == other.counts
    assert one.virtual_s == other.virtual_s
