"""Retries that wait for a time: what runs meanwhile, when they begin, and what stands still."""

from __future__ import annotations

from typing import Any

from daskprs._core.limits import Limits
from daskprs._core.outcomes import Status
from daskprs._core.retry_delay import retry_delay_s

EXPONENTIAL = Limits(retry_delay_s=None)


def test_a_slot_does_other_work_until_the_retry_is_due(desk: Any) -> None:
    """Then the retry comes before new work, also where its mini-batch has to be the first."""
    it = desk(5, retry_delay_s=10.0, run_max_try=2)
    (slot,) = it.leases
    it.fail(slot)
    assert it.indexes(slot) == [1]
    assert it.ledger.standing().retry_in_s == 10.0
    it.tick(9.9)
    it.do(slot)
    assert it.indexes(slot) == [2]
    it.tick(0.1)
    assert it.ledger.standing().delayed == 0
    it.do(slot)
    assert it.indexes(slot) == [0]
    assert it.leases[slot].work[0].attempt == 2
    it.do_all()
    assert it.finished
    assert it.committed == [1, 2, 0, 3, 4]


def test_an_event_at_the_due_time_begins_the_retry(desk: Any) -> None:
    """The ledger has no clock: it says how long its driver may sleep."""
    it = desk(1, retry_delay_s=10.0)
    (slot,) = it.leases
    assert it.ledger.wait_s(it.now_s, 0.25) == 0.25
    it.fail(slot)
    it.tick(9.875)
    assert not it.leases
    assert not it.finished
    assert it.ledger.wait_s(it.now_s, 0.25) == 0.125
    it.tick(0.125)
    assert it.indexes(slot) == [0]


def test_only_a_charged_failure_delays(desk: Any) -> None:
    """The loss of a worker says nothing about a service that the script calls."""
    it = desk(1, retry_delay_s=10.0)
    (slot,) = it.leases
    it.lose(slot)
    it.tick(30.0)
    other = it.add(1, node=1)
    assert it.indexes(other) == [0]
    it.fail(other, status=Status.LOAD_EXCEPTION)
    assert not it.leases


def test_a_held_failure_delays_only_what_has_failed_by_itself_before(desk: Any) -> None:
    """A victim of another mini-batch runs again at once; for the other one, nothing has changed."""
    it = desk(2, retry_delay_s=10.0)
    (slot,) = it.leases
    it.fail(slot, ends=False)
    it.fail(slot, ends=False)
    assert it.indexes(slot) == [1]

    it = desk(1, retry_delay_s=10.0)
    (slot,) = it.leases
    it.fail(slot, ends=False)
    it.tick(10.0)
    it.fail(slot, ends=False)
    assert [one.charged for one in it.failures] == [True, False]
    assert not it.leases
    it.tick(10.0)
    assert it.leases[slot].work[0].attempt == 3


def test_another_node_is_waited_for_when_the_retry_is_due(desk: Any) -> None:
    """Not while it is delayed: else a long delay would leave it to the node where it failed."""
    it = desk(3, slots=0, retry_delay_s=60.0)
    here, there = it.add(0, node=0), it.add(0, node=1)
    it.fail(here)  # mini-batch 0; the last one follows
    it.tick(60.0)
    it.do(here)
    assert here not in it.leases
    it.do(there)
    assert it.indexes(there) == [0]


def test_the_job_does_not_stall_while_all_that_is_left_is_delayed(desk: Any) -> None:
    """What runs beside it is watched as ever, and so is the retry once it is due."""
    limits = {"retry_delay_s": 1000.0, "progress_update_timeout_s": 100.0}
    it = desk(1, **limits)
    (slot,) = it.leases
    it.tick(0.0)
    it.tick(90.0)
    it.fail(slot)
    it.tick(999.0)
    assert it.abort is None
    it.tick(1.0)
    assert it.leases
    it.tick(100.0)
    assert it.abort is None
    it.tick(1.0)
    assert it.abort is not None

    it = desk(2, **limits)
    (slot,) = it.leases
    it.fail(slot)
    it.tick(140.0)
    assert it.abort is not None, "mini-batch 1 hangs"


def test_a_plan_that_has_none_yet_may_stall_beside_a_delayed_retry(
    desk: Any, a_mini_batch: Any
) -> None:
    """The delay explains nothing there: the input of the next mini-batch does not come."""

    def plan() -> Any:
        yield a_mini_batch(0)
        while True:
            yield None

    it = desk(plan(), retry_delay_s=1000.0, progress_update_timeout_s=100.0)
    it.tick(0.0)
    it.fail(next(iter(it.leases)))
    it.tick(150.0)
    assert "was still being computed" in it.abort.reason


def test_delays_double_up_to_a_minute_and_none_is_like_another() -> None:
    """Each is at least half of what it may be."""
    of_one = [retry_delay_s(EXPONENTIAL, "a", 7, tries) for tries in (1, 2, 3, 6, 7, 2000)]
    for delay_s, whole_s in zip(of_one, (1, 2, 4, 32, 60, 60), strict=True):
        assert whole_s / 2 <= delay_s <= whole_s
    others = {retry_delay_s(EXPONENTIAL, "a", index, 1) for index in range(100)}
    assert len(others) == 100
    assert max(others) - min(others) > 0.4


def test_a_seed_repeats_the_delays_of_a_job(desk: Any) -> None:
    """In whatever order its mini-batches fail; another job has others."""

    def due_s(seed: str, *order: int) -> dict[int, float]:
        it = desk(2, slots=2, retry_delay_s=None, seed=seed)
        slots = {it.indexes(slot)[0]: slot for slot in it.leases}
        for index in order:
            it.fail(slots[index])
        begun: dict[int, float] = {}
        while it.ledger.standing().delayed:
            it.tick(it.ledger.wait_s(it.now_s, 60.0))
            begun |= {it.indexes(slot)[0]: it.now_s for slot in it.leases if it.leases[slot]}
        return begun

    assert due_s("a", 0, 1) == due_s("a", 1, 0)
    assert due_s("a", 0, 1) != due_s("b", 0, 1)
