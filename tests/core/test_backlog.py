"""What a lease is made of: leases end where something else has to be loaded, if they can."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskprs.core.backlog import Backlog
from daskprs.core.entry import Entry
from daskprs.core.mini_batch import MiniBatch

if TYPE_CHECKING:
    from collections.abc import Iterable


def backlog_of(load_groups: Iterable[int | None]) -> Backlog:
    """Return a backlog of mini-batches of these load groups."""
    return Backlog(
        Entry(MiniBatch(index, None, str(index), load_group=group))
        for index, group in enumerate(load_groups)
    )


def taken(backlog: Backlog, most: int, to_the_end: int = 0) -> list[int]:
    """Return the indexes of the next lease."""
    work = backlog.take(most, lambda _: False, to_the_end=to_the_end)
    return [entry.mini_batch.index for entry in work]


@pytest.mark.parametrize(
    ("most", "to_the_end", "first"),
    [
        (3, 1, 4),  # one more completes the first group
        (2, 1, 2),  # two would be too many, and no group ends before
        (5, 2, 4),  # back to the end of the group
        (5, 3, 8),  # on to the end of the next one
        (9, 5, 10),  # to the end of the plan
        (3, 0, 3),  # nobody asked for it
    ],
)
def test_a_lease_goes_to_the_end_of_a_load_group_or_back_to_one(
    most: int, to_the_end: int, first: int
) -> None:
    """Groups of four, four and two: nothing is lost, and nothing comes twice."""
    backlog = backlog_of([0] * 4 + [1] * 4 + [2] * 2)
    assert taken(backlog, most, to_the_end) == list(range(first))
    assert taken(backlog, 10) == list(range(first, 10))
    assert taken(backlog, 1) == []
    assert backlog.empty


def test_where_nothing_is_shared_leases_are_as_large_as_they_may_be() -> None:
    """And nothing is made ahead."""
    backlog = backlog_of([None] * 5)
    assert taken(backlog, 3, 10) == [0, 1, 2]
    assert len(backlog) == 0


def test_little_is_handed_back_for_the_sake_of_an_end() -> None:
    """A lease that would lose more than half is cut where it was to be cut."""
    assert taken(backlog_of([0] + [1] * 20), 10, 3) == list(range(10))


@given(
    sizes=st.lists(st.integers(1, 30), max_size=8),
    leases=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=60),
)
def test_each_is_handed_out_once_and_in_order(
    sizes: list[int], leases: list[tuple[int, int]]
) -> None:
    """Whatever is asked for."""
    groups = [group for group, size in enumerate(sizes) for _ in range(size)]
    backlog = backlog_of(groups)
    found: list[int] = []
    for most, to_the_end in leases:
        lease = taken(backlog, most, to_the_end)
        assert len(lease) <= most + to_the_end
        assert lease or most == 0 or len(found) == len(groups)
        found += lease
    found += taken(backlog, len(groups) + 1)
    assert found == list(range(len(groups)))
