"""Leases that wait for a Dask thread, which the task of another has."""

from __future__ import annotations

from typing import Any

from daskprs._core.actions import (
    LeaseKept,
    LeaseWithdrawn,
    SlotAdded,
    SlotId,
    SlotsLost,
    ThreadsCounted,
    Withdraw,
)
from daskprs._core.outcomes import Failure
from tests.support.returns import returned

BUSY = SlotId("tcp://host0", 0, 0)
"""On a worker without an idle thread."""
IDLE = SlotId("tcp://host1", 0, 1)


def two_workers(desk: Any, plan: int, **limits: Any) -> Any:
    """Return a desk with a slot on each of two workers, one of them without an idle thread."""
    it = desk(plan, slots=0, **limits)
    wait_for_a_thread(it)
    it.tell(SlotAdded(BUSY))
    it.tell(SlotAdded(IDLE))
    return it


def wait_for_a_thread(it: Any, *leases: int) -> list[int]:
    """Let leases wait on the busy worker, and return those that it is asked to give back."""
    said = it.tell(ThreadsCounted(frozenset({BUSY.worker}), frozenset(leases)))
    return [action.lease_id for action in said if isinstance(action, Withdraw)]


def test_a_new_lease_goes_to_a_worker_with_an_idle_thread_first(desk: Any) -> None:
    """Though the slot of the busy worker was there before, and is as free."""
    it = desk(1, slots=0)
    third = it.add(0, node=2)
    it.tell(SlotAdded(BUSY))
    it.tell(SlotAdded(IDLE))
    wait_for_a_thread(it)
    it.leases.clear()
    it.tell(SlotsLost((third,), expected=True))
    assert list(it.leases) == [IDLE]


def test_a_lease_does_not_move_to_a_slot_that_could_not_start_an_agent(desk: Any) -> None:
    """Not even after its rest: there it would fail once more, and end the job in the end."""
    it = two_workers(desk, 1)
    lease = it.leases.pop(BUSY)
    assert wait_for_a_thread(it, lease.id) == [lease.id]
    it.tell(LeaseWithdrawn(lease.id))
    it.refuse(IDLE)
    it.tick(5.0)
    assert list(it.leases) == [BUSY]
    assert wait_for_a_thread(it, it.leases[BUSY].id) == []


def test_a_lease_that_waits_for_a_thread_moves_uncharged(desk: Any, an_outcome: Any) -> None:
    """Its answer is dropped, were it to come after all."""
    it = two_workers(desk, 2, run_max_try=1, max_node_losses=1)
    it.do(IDLE)
    lease = it.leases[BUSY]
    assert wait_for_a_thread(it, lease.id) == [lease.id]
    del it.leases[BUSY]
    it.tell(LeaseWithdrawn(lease.id))
    assert list(it.leases) == [IDLE]
    assert it.indexes(IDLE) == [0]
    assert it.tell(returned(lease.id, [an_outcome(0)])) == []
    it.do(IDLE)
    assert it.finished
    assert it.committed == [1, 0]
    assert it.failures == []


def test_a_lease_stays_as_long_as_every_other_slot_has_work_or_waits_too(desk: Any) -> None:
    """It is asked for once there is one that would begin it at once."""
    it = two_workers(desk, 2)
    lease = it.leases[BUSY].id
    assert wait_for_a_thread(it, lease) == []
    it.tell(ThreadsCounted(frozenset({BUSY.worker, IDLE.worker}), frozenset({lease})))
    said = it.do(IDLE)
    assert not [action for action in said if isinstance(action, Withdraw)]
    assert wait_for_a_thread(it, lease) == [lease]


def test_a_lease_is_asked_for_once_until_its_worker_has_kept_it(desk: Any) -> None:
    """The worker may not have answered; then it is asked again."""
    it = two_workers(desk, 2)
    it.do(IDLE)
    lease = it.leases[BUSY].id
    assert wait_for_a_thread(it, lease) == [lease]
    assert wait_for_a_thread(it, lease) == []
    it.tell(LeaseKept(lease))
    assert wait_for_a_thread(it, lease) == [lease]


def test_no_more_leases_are_asked_for_than_slots_would_begin_at_once(desk: Any) -> None:
    """Two wait, and one slot is free elsewhere."""
    it = desk(3, slots=0)
    wait_for_a_thread(it)
    it.tell(SlotAdded(BUSY))
    it.tell(SlotAdded(BUSY._replace(number=1)))
    it.tell(SlotAdded(IDLE))
    it.do(IDLE)
    assert len(wait_for_a_thread(it, *(lease.id for lease in it.leases.values()))) == 1


def test_a_lease_whose_agent_is_at_work_stays_with_its_worker(desk: Any) -> None:
    """It continues one that has begun: to move it would run a mini-batch twice."""
    it = two_workers(desk, 2)
    it.do(IDLE)
    it.give(BUSY, running=(0,))
    assert wait_for_a_thread(it, it.leases[BUSY].id) == []


def test_a_withdrawn_lease_gives_back_the_number_of_its_process(desk: Any) -> None:
    """The next process of the node has it, so that no number is left out."""
    it = two_workers(desk, 2)
    it.do(IDLE)
    lease = it.leases.pop(BUSY)
    it.lose(IDLE)
    beside = SlotId("tcp://beside", 0, BUSY.node)
    it.tell(SlotAdded(beside))
    assert wait_for_a_thread(it, lease.id) == [lease.id]
    it.tell(LeaseWithdrawn(lease.id))
    assert it.leases[beside].assignment.process == lease.assignment.process == "process000"


BESIDE = SlotId("tcp://beside", 0, BUSY.node)
"""On another worker of the same host."""
MISSING = Failure("ImportError", "no such module", "Traceback …", retryable=False)


def moved_to_the_worker_beside(desk: Any, plan: int, **limits: Any) -> Any:
    """Return a desk whose first lease was withdrawn, and moved to the other worker of its host."""
    it = desk(plan, slots=0, **limits)
    wait_for_a_thread(it)
    it.tell(SlotAdded(BUSY))
    it.tell(SlotAdded(BESIDE))
    lease = it.leases.pop(BUSY)
    assert wait_for_a_thread(it, lease.id) == [lease.id]
    it.tell(LeaseWithdrawn(lease.id))
    assert list(it.leases) == [BESIDE]
    return it


def test_a_slot_whose_lease_was_withdrawn_does_not_keep_a_hopeless_job_from_ending(
    desk: Any,
) -> None:
    """It had no agent: one more failure of the other slot's agents could not be mended by it."""
    it = moved_to_the_worker_beside(desk, 1)
    it.fail_init(BESIDE, failure=MISSING)
    assert it.abort is None
    it.fail_init(BESIDE, failure=MISSING)
    assert "with the same error in 2 processes" in it.abort.reason


def test_a_slot_whose_lease_was_withdrawn_is_not_waited_for_when_its_node_gets_no_more(
    desk: Any,
) -> None:
    """Errors that another try may mend end the job after three tries for each slot."""
    it = moved_to_the_worker_beside(desk, 1)
    for _ in range(6):
        assert it.abort is None
        it.fail_init(BESIDE)
    assert "failed on every node, in 6 tries" in it.abort.reason


def test_a_slot_whose_lease_was_withdrawn_counts_not_as_one_whose_init_was_fast(desk: Any) -> None:
    """All processes that there were took too long: no other will do better."""
    it = moved_to_the_worker_beside(desk, 1, init_timeout_s=10.0)
    it.fail_init(BESIDE, elapsed_s=10.0)
    assert "longer than init_timeout=10 s in every process" in it.abort.reason
