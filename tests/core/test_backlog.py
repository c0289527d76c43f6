"""What a lease is made of: what waits for its worker, up to where something else is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskprs._core.backlog import Backlog
from daskprs._core.entry import Entry
from daskprs._core.mini_batch import MiniBatch

if TYPE_CHECKING:
    from collections.abc import Iterable


def backlog_of(load_groups: Iterable[int | None]) -> Backlog:
    """Return a backlog of mini-batches of these load groups."""
    return Backlog(
        Entry(MiniBatch(index, None, str(index), load_group=group))
        for index, group in enumerate(load_groups)
    )


def backlog_at(homes: Iterable[str | None]) -> Backlog:
    """Return a backlog of mini-batches at these workers; None is a pause of the plan."""
    return Backlog(
        None if home is None else Entry(MiniBatch(index, None, str(index), worker=home))
        for index, home in enumerate(homes)
    )


def taken(
    backlog: Backlog, most: int, to_the_end: int = 0, *, worker: str = "", slots: int = 1
) -> list[int]:
    """Return the indexes of the next lease."""
    work = backlog.take(most, lambda _: False, to_the_end, worker=worker, slots=slots)
    return indexes(work)


def indexes(entries: Iterable[Entry]) -> list[int]:
    """Return the indexes of entries."""
    return [entry.mini_batch.index for entry in entries]


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


def test_a_slot_takes_what_waits_for_another_attempt_then_its_own_then_what_is_nobodys() -> None:
    """And nothing that waits for another worker."""
    backlog = backlog_at(["a", "b", "", "a", "", None])
    backlog.look_ahead()
    backlog.catch_up()
    backlog.again(Entry(MiniBatch(9, None, "", worker="b"), attempt=2))
    assert taken(backlog, 4, worker="a") == [9, 0, 3, 2]
    assert taken(backlog, 4, worker="a") == [4]
    assert taken(backlog, 4, worker="a") == []
    assert taken(backlog, 4, worker="b") == [1]
    assert not backlog.empty, "the plan has only paused"


def test_the_slots_of_a_worker_share_what_waits_for_it() -> None:
    """One of them does not take all."""
    backlog = backlog_at(["a"] * 5 + [None])
    backlog.look_ahead()
    assert taken(backlog, 10, worker="a", slots=2) == [0, 1, 2]
    assert taken(backlog, 10, worker="a", slots=2) == [3]
    assert taken(backlog, 10, worker="a", slots=2) == [4]


def test_a_pause_of_the_plan_is_not_its_end() -> None:
    """It is asked again at the next event, not before."""
    backlog = backlog_at([None, "a", None, None, ""])
    for found in ([], [1], [], [4]):
        backlog.catch_up()
        assert taken(backlog, 10, worker="a") == found or not found
    assert taken(backlog, 10) == []
    assert backlog.empty


def test_a_plan_with_homes_is_followed_up_to_its_pause_and_any_other_as_far_as_needed() -> None:
    """So a slot never waits for work of its worker that stands behind that of others."""
    plain = backlog_at([""] * 1000)
    assert taken(plain, 2) == [0, 1]
    plain.catch_up()
    assert len(plain) == 0
    located = backlog_at(["a", "b"] * 500 + [None])
    assert taken(located, 1, worker="b") == []
    assert located.homes == {"a": 500, "b": 500}
    mixed = backlog_at([None] + [""] * 1000 + ["a"])
    mixed.look_ahead()
    mixed.catch_up()
    assert len(mixed) < 1000, "what has no home is not made by the million"


def test_what_has_not_begun_goes_back_to_its_worker_and_what_failed_to_any() -> None:
    """In front of the rest, in its old order; what a worker gave back is for others."""
    backlog = backlog_at(["a"] * 6 + [None])
    backlog.look_ahead()
    first = backlog.take(4, lambda _: False, worker="a")
    backlog.put_back([first[0], first[1].alone(), first[2]])
    assert taken(backlog, 9, worker="b") == [1]
    backlog.put_back([first[3]], anywhere=True)
    assert taken(backlog, 9, worker="b") == [3]
    assert taken(backlog, 9, worker="a") == [0, 2, 4, 5]


def test_a_lease_ends_with_a_load_group_of_its_worker() -> None:
    """What is too much stays at home."""
    groups = [0] * 3 + [1] * 9
    backlog = Backlog(
        Entry(MiniBatch(index, None, "", load_group=group, worker="a"))
        for index, group in enumerate(groups)
    )
    backlog.look_ahead()
    assert taken(backlog, 2, 1, worker="a") == [0, 1, 2]
    assert taken(backlog, 3, 2, worker="a") == [3, 4, 5]
    assert backlog.homes == {"a": 6}


def test_moved_work_is_the_last_of_its_worker_and_released_work_the_first_for_all() -> None:
    """In the order of the plan."""
    backlog = backlog_at(["a"] * 5 + ["b"] * 2 + [""])
    backlog.look_ahead()
    assert indexes(backlog.move("a", 2)) == [3, 4]
    assert indexes(backlog.move("b", 9)) == [5, 6]
    backlog.release("a")
    assert backlog.homes == {}
    assert taken(backlog, 9) == [0, 1, 2, 7]
