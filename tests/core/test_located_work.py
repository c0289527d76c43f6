"""Who runs what lies on a worker, and what a plan means that knows no mini-batch yet."""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING, Any

import pytest

from daskprs._core.actions import LeaseWithdrawn, Submit, ThreadsCounted, Withdraw
from daskprs._core.plan_entries import with_first_item_deadline
from daskprs.errors import DaskprsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

A, B, C = (f"tcp://host{node}" for node in range(3))


@pytest.fixture
def plan(a_mini_batch: Any) -> Callable[..., Iterator[Any]]:
    """Make plans of mini-batches at these workers; None is a pause."""

    def plan_of(*homes: str | None) -> Iterator[Any]:
        numbers = itertools.count()
        for home in homes:
            yield None if home is None else a_mini_batch(next(numbers), worker=home)

    return plan_of


def test_work_goes_to_the_worker_that_holds_it(desk: Any, plan: Any) -> None:
    """Whatever the order of the slots."""
    it = desk(plan(A, B, B, A, C), slots=0)
    slots = [it.add(0, node) for node in (2, 1, 0)]
    assert [it.indexes(slot) for slot in slots] == [[4], [1], [0]]
    it.do(slots[1])
    it.do(slots[2])
    assert [it.indexes(slot) for slot in slots] == [[4], [2], [3]]
    it.do_all()
    assert it.finished


def test_an_idle_slot_waits_before_it_gets_work_of_another_worker(desk: Any, plan: Any) -> None:
    """It gets the last of it, and not more than lets both finish together."""
    it = desk(plan(*[A] * 20), slots=0)
    at_home, elsewhere = it.add(0, 0), it.add(0, 1)
    it.do(at_home, seconds_each=0.1)
    it.tick(0.4)
    assert elsewhere not in it.leases
    it.tick(0.1)
    assert it.indexes(elsewhere) == [16, 17, 18, 19]
    it.do(elsewhere, seconds_each=0.1)
    assert elsewhere not in it.leases, "its own may come meanwhile"
    it.tick(0.3)
    it.do(at_home, seconds_each=0.1)
    it.tick(0.2)
    assert elsewhere in it.leases
    it.do_all()
    while not it.finished:
        it.tick(0.5)
        it.do_all()


def test_an_idle_slot_gets_none_where_another_got_the_last_that_fits(desk: Any, plan: Any) -> None:
    """Both were free for it a moment before."""
    it = desk(plan(*[A] * 20), slots=0, usage_limits=(("tokens", 30.0),))
    at_home, one, other = it.add(0, 0), it.add(0, 1), it.add(0, 2)
    it.ledger.spending.take(0, "process000", (("tokens", 10.0),))
    it.do(at_home, seconds_each=0.1, usage=(("tokens", 10.0),))
    it.tick(0.0)
    it.tick(0.5)
    assert len(it.indexes(at_home)) == len(it.indexes(one)) == 1
    assert other not in it.leases


def test_a_slot_that_was_idle_before_there_was_work_waits_as_long(desk: Any, plan: Any) -> None:
    """Partitions of all workers are ready at about the same time."""
    it = desk(plan(None, None, A, A, A, None, B), slots=0)
    at_home, elsewhere = it.add(0, 0), it.add(0, 1)
    it.tick(20.0)
    assert it.indexes(at_home) == [0]
    assert elsewhere not in it.leases
    it.tick(0.25)
    assert it.indexes(elsewhere) == [3]


def test_work_of_a_worker_without_slots_is_soon_anybodys(desk: Any, plan: Any) -> None:
    """Its slots may only be late; once it is released, nobody waits for each lease of it."""
    it = desk(plan(A, A, A), slots=0)
    slot = it.add(0, 1)
    it.tick(0.0)
    it.tick(1.9)
    assert it.leases == {}
    it.tick(0.1)
    for index in range(3):
        assert it.indexes(slot) == [index]
        it.do(slot)
    assert it.finished


def test_work_of_a_lost_worker_goes_to_others(desk: Any, plan: Any) -> None:
    """What had not begun, too."""
    it = desk(plan(A, A, B), slots=0)
    lost, kept = it.add(0, 0), it.add(0, 1)
    it.lose(lost)
    it.do(kept)
    assert it.indexes(kept) == [0]
    it.tick(0.0)
    it.do(kept)
    it.tick(2.0)
    assert it.indexes(kept) == [1]
    it.do(kept)
    assert it.finished


def test_what_a_busy_worker_gave_back_does_not_return_to_it(desk: Any, plan: Any) -> None:
    """Its slot is free again, but no thread of Dask begins a lease there."""
    it = desk(plan(A), slots=0)
    busy, idle = it.add(0, 0), it.add(0, 1)
    lease = it.leases.pop(busy)
    said = it.tell(ThreadsCounted(frozenset({A}), frozenset({lease.id})))
    assert Withdraw(lease.id) in said
    (submitted,) = (one for one in it.tell(LeaseWithdrawn(lease.id)) if isinstance(one, Submit))
    assert submitted.slot == idle


def test_a_retry_runs_where_any_other_would(desk: Any, plan: Any) -> None:
    """Its data is moved: the place may be to blame."""
    it = desk(plan(A), slots=0)
    at_home, elsewhere = it.add(0, 0), it.add(0, 1)
    it.fail(at_home)
    assert it.indexes(elsewhere) == [0]


def test_a_job_is_not_over_while_its_plan_knows_nothing(desk: Any, plan: Any) -> None:
    """All that is known is done; then there is more."""
    it = desk(plan(A, None, None, None, A, None), slots=0)
    slot = it.add(0, 0)
    it.do(slot)
    assert not it.finished
    assert not it.ledger.standing().plan_complete
    it.tick(0.25)
    it.tick(0.25)
    assert it.indexes(slot) == [1]
    it.do(slot)
    it.tick(0.25)
    assert it.finished


def test_a_plan_that_knows_nothing_for_too_long_ends_the_job_and_says_so(
    desk: Any, plan: Any, a_mini_batch: Any
) -> None:
    """A new mini-batch is progress; a pause is not."""
    known = [False]

    def waiting() -> Iterator[Any]:
        while not known[0]:
            yield None
        yield a_mini_batch(0)
        yield from plan(*[None] * 1000)

    it = desk(waiting(), progress_update_timeout_s=100.0)
    it.tick(0.0)
    it.tick(99.0)
    known[0] = True
    it.tick(0.0)
    it.do_all()
    it.tick(99.0)
    assert it.abort is None
    it.tick(2.0)
    assert "progress_update_timeout=100 s" in it.abort.reason
    assert "still being computed" in it.abort.reason


def test_the_first_mini_batch_is_due_while_the_plan_knows_nothing(a_mini_batch: Any) -> None:
    """And only the first."""
    late = with_first_item_deadline(itertools.repeat(None), 0.01)
    assert next(late) is None
    with pytest.raises(DaskprsError, match=r"is not there after .* first_task_creation_timeout"):
        deque(late, maxlen=0)
    rest = [None, a_mini_batch(0), None, a_mini_batch(1)]
    assert list(with_first_item_deadline(iter(rest), 60.0)) == rest
