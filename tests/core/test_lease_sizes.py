"""Leases last about a second, and end together."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from daskprs._core.actions import Submit
from daskprs._core.lease_sizes import GROWTH, LARGEST, LeaseSizes


def test_the_first_leases_are_single_mini_batches() -> None:
    """Nothing is known yet."""
    assert LeaseSizes().next(4, 1000) == 1


def test_a_lease_grows_fourfold_at_most() -> None:
    """One quick mini-batch does not prove that all are."""
    sizes = LeaseSizes()
    sizes.learn(1, 0.00001)
    assert sizes.next(4, None) == 4
    sizes.learn(4, 0.00004)
    assert sizes.next(4, None) == 16


@pytest.mark.parametrize(
    ("seconds_each", "size"),
    [
        (1 / 128, 256),
        (0.3, 6),
        (1.5, 3),
        (60.0, 2),
        *((one, LARGEST) for one in (0.0, 1e-300, 1e-6)),
    ],
)
def test_a_slot_has_two_seconds_of_work_in_hand(seconds_each: float, size: int) -> None:
    """As many mini-batches as fit into that, within the largest lease; a few if hardly one does."""
    sizes = LeaseSizes()
    for _ in range(20):
        count = sizes.next(4, None)
        sizes.learn(count, count * seconds_each)
    assert sizes.next(4, None) == size


def test_a_slot_that_is_alone_has_nobody_to_finish_together_with() -> None:
    """It has the next one to load up to the end."""
    sizes = LeaseSizes()
    sizes.learn(1, 60.0)
    assert [sizes.next(slots, 2) for slots in (1, 2)] == [2, 1]


def test_to_the_end_of_a_row_group_a_lease_goes_no_further_than_any_may() -> None:
    """However quick the first mini-batch was; else for a tenth of a second."""
    sizes = LeaseSizes()
    sizes.learn(1, 1e-300)
    assert [sizes.to_the_end(size, slots=4) for size in (1, GROWTH, 9)] == [GROWTH - 1, 0, 0]
    sizes = LeaseSizes(seconds=1.0, count=100.0, largest_yet=100)
    assert sizes.to_the_end(2, slots=4) == 10


def test_one_slow_mini_batch_among_thousands_changes_little() -> None:
    """A mini-batch counts as one, not as a lease."""
    sizes = LeaseSizes(largest_yet=1000)
    for _ in range(10):
        sizes.learn(1000, 1.0)
    sizes.learn(1, 5.0)
    assert sizes.next(4, None) > 200


def test_leases_shrink_toward_the_end() -> None:
    """A slot takes half of its share, so that no slot works on alone for long: one of the last."""
    sizes = LeaseSizes(seconds=1.0, count=10.0, largest_yet=10)
    assert [sizes.next(2, left) for left in (1000, 20, 4, 1)] == [20, 5, 1, 1]


def test_leases_do_not_shrink_below_what_is_worth_a_task() -> None:
    """What takes a few milliseconds altogether is not dealt out one by one."""
    sizes = LeaseSizes(seconds=1.0, count=100_000.0, largest_yet=10_000)
    assert sizes.next(4, left=100) > 100


def test_failed_attempts_do_not_tell_how_long_mini_batches_take(desk: Any) -> None:
    """Retries of what exceeded its minute do not make the leases of all others small."""
    it = desk(100_000)
    slot = next(iter(it.leases))
    for _ in range(6):
        it.do(slot, seconds_each=0.001)
    size = len(it.leases[slot].work)
    it.fail(slot, seconds_each=60.0)
    it.fail(slot, seconds_each=60.0)
    assert len(it.leases[slot].work) == size


@pytest.mark.long
def test_a_hundred_thousand_mini_batches_of_nothing_are_few_leases(desk: Any) -> None:
    """A Dask task costs milliseconds, and they are not paid for each mini-batch."""
    it = desk(100_000, slots=4)
    for _ in count():
        if not it.leases:
            break
        it.do(next(iter(it.leases)), seconds_each=0.00001)
    assert len(it.committed) == 100_000
    assert len([one for one in it.said if isinstance(one, Submit)]) < 100
