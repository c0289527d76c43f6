"""The search for the items that fail in one mini-batch."""

from __future__ import annotations

from math import ceil, log2
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskprs._core.bisection import FRUITLESS, Bisection, most_failed
from daskprs._core.outcomes import Failure, Outcome, Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from daskprs._core.pieces import Range

MOST_ATTEMPTS = 10_000


def outcome(attempt: int = 1) -> Outcome:
    """Return a failed attempt."""
    failure = Failure("ValueError", "bad")
    return Outcome(0, attempt, Status.RUN_EXCEPTION, 9, 0, 0.0, 1.0, 1.0, 1.0, failure=failure)


def searched(
    items: int, fails: Callable[[Range], bool], *, confirms: bool = False
) -> tuple[Bisection, list[Range], int]:
    """Search as agents answer; return the search, the ranges whose rows count, and the calls."""
    search, calls = Bisection(items, outcome(), confirms=confirms), 0
    for _ in range(MOST_ATTEMPTS):
        pieces = search.pieces()
        if pieces.is_trial:
            first, *others = pieces.ranges
            calls += 1
            if fails(first):
                passed = [not fails(one) for one in others]
                calls += passed.index(True) + 1 if any(passed) else len(passed)
                search.fail(outcome(), 0)
            else:
                search.passed()
            continue
        for position, range_ in enumerate(pieces.ranges):
            calls += 1
            if fails(range_):
                search.fail(outcome(), position)
                break
        else:
            return search, [*pieces.ranges], calls
    raise AssertionError(search)


def with_bad(bad: set[int]) -> Callable[[Range], bool]:
    """Return whether a range has a bad item."""
    return lambda range_: any(range_[0] <= item < range_[1] for item in bad)


@st.composite
def mini_batches(draw: st.DrawFn) -> tuple[int, set[int]]:
    """Draw a number of items, and some that are bad."""
    items = draw(st.integers(1, 300))
    most = most_failed(items)
    return items, draw(st.sets(st.integers(0, items - 1), min_size=1, max_size=most))


@given(mini_batches())
def test_just_the_bad_items_are_found(case: tuple[int, set[int]]) -> None:
    """Each alone; all others run, each in one range, in order."""
    items, bad = case
    search, ranges, calls = searched(items, with_bad(bad))
    assert {one.start for one in search.failed} == bad
    assert all(one.stop == one.start + 1 for one in search.failed)
    ran = [item for start, stop in ranges for item in range(start, stop)]
    assert ran == [item for item in range(items) if item not in bad]
    levels = ceil(log2(items)) if items > 1 else 0
    assert calls <= len(bad) * (2 * levels + 3 + len(bad))


def test_one_bad_row_of_a_thousand_costs_some_twenty_calls() -> None:
    """In the mean over its place, what a million rows with a hundred bad ones are allowed."""
    calls = [searched(1000, with_bad({bad}))[2] for bad in range(1000)]
    assert sum(calls) / len(calls) < 21
    assert max(calls) <= 23


@pytest.mark.parametrize("items", [4, 16])
def test_a_small_mini_batch_is_searched_to_its_end(items: int) -> None:
    """However many of its items are bad, no good one is blamed."""
    for bad in ({1, 2}, {0, 3}, {0, 1, 3}, {*range(items)}):
        search, _, calls = searched(items, with_bad(bad))
        assert [(one.start, one.stop) for one in search.failed] == [(n, n + 1) for n in sorted(bad)]
        assert calls <= 6 * items


@given(st.integers(1, 200), st.data())
def test_too_many_bad_items_take_their_ranges_along(items: int, data: st.DataObject) -> None:
    """The search ends; nothing that runs in the end is bad, and nothing is lost."""
    bad = data.draw(st.sets(st.integers(0, items - 1), min_size=max(1, items // 2)))
    search, ranges, _ = searched(items, with_bad(bad))
    failed = {item for one in search.failed for item in range(one.start, one.stop)}
    ran = [item for start, stop in ranges for item in range(start, stop)]
    assert bad <= failed
    assert sorted([*ran, *failed]) == [*range(items)]
    alone = [one for one in search.failed if one.stop - one.start == 1]
    assert len(alone) <= items


@given(st.integers(2, 200), st.integers(1, 50))
def test_what_fails_only_together_runs_in_smaller_ranges(items: int, most: int) -> None:
    """A call that is too large, say, for memory: no item is bad."""
    search, ranges, _ = searched(items, lambda range_: range_[1] - range_[0] > most)
    assert search.failed == []
    assert max(stop - start for start, stop in ranges) <= most
    assert [item for start, stop in ranges for item in range(start, stop)] == [*range(items)]


@pytest.mark.parametrize(("items", "passes", "is_fruitless"), [(9, False, True), (9, True, False)])
def test_a_search_in_which_nothing_passes_is_fruitless(
    items: int, *, passes: bool, is_fruitless: bool
) -> None:
    """Once some ranges have failed alone; a single item has no other part that could pass."""
    search = Bisection(items, outcome())
    if passes:
        search.passed()
    while len(search.failed) < FRUITLESS and search.count < items:
        assert not search.is_fruitless
        search.fail(outcome(), 0)
    assert search.is_fruitless == is_fruitless
    assert not Bisection(1, outcome()).is_fruitless


def test_an_item_that_runs_out_of_time_runs_again() -> None:
    """With more time: a machine that stands still for a second blames nobody."""
    late = outcome()._replace(status=Status.RUN_TIMEOUT)
    search = Bisection(2, outcome())
    search.fail(late, 0)
    assert search.is_confirming
    assert search.pieces().ranges == ((0, 1),)
    search.passed()
    assert search.failed == []
    assert search.pieces().ranges == ((0, 1), (1, 2))
    search.fail(late, 1)
    assert search.pieces().ranges == ((1, 2),)
    search.fail(late, 0)
    assert [one.start for one in search.failed] == [1]
    assert not search.is_confirming


def test_an_item_may_have_to_fail_twice() -> None:
    """Whoever was killed from outside at the wrong moment is no bad row."""
    search = Bisection(2, outcome(), confirms=True)
    search.fail(outcome(), 0)
    assert search.is_confirming
    assert search.pieces().ranges == ((0, 1),)
    search.passed()
    assert search.failed == []
    search.fail(outcome(), 1)
    search.fail(outcome(), 0)
    assert [one.start for one in search.failed] == [1]


@given(st.integers(1, 60), st.data())
def test_a_search_ends_whatever_fails_when(items: int, data: st.DataObject) -> None:
    """Also where the same range fails once and passes once."""
    coin = data.draw(st.randoms(use_true_random=False))
    search, ranges, _ = searched(items, lambda _: coin.random() < 0.4, confirms=True)
    failed = [item for one in search.failed for item in range(one.start, one.stop)]
    ran = [item for start, stop in ranges for item in range(start, stop)]
    assert sorted([*ran, *failed]) == [*range(items)]


def test_who_ends_the_process_after_an_item_has_failed_does_not_hide_its_error() -> None:
    """The item is listed with what it did itself, in a trial of its own."""
    search = Bisection(2, outcome())
    died = outcome(2)._replace(status=Status.PROCESS_DIED, failure=Failure("PROCESS_DIED", ""))
    search.fail(died, 1)
    assert search.failed == []
    assert search.pieces().ranges == ((0, 1),)
    search.fail(outcome(3), 0)
    assert [(one.start, one.status, one.attempts) for one in search.failed] == [
        (0, "RUN_EXCEPTION", 3)
    ]
