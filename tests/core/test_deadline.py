"""Near its end a job, or a worker, gets only what fits; then the job is cut short, uncharged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daskprs._core.actions import EndSet, Finish, Interrupt, SlotAdded, SlotId, Submit
from daskprs._core.lease import AgentExited, Death
from daskprs._core.lease_sizes import MARGIN, fitting
from daskprs._core.outcomes import Status
from tests.core.conftest import Desk, outcome
from tests.support.returns import returned

if TYPE_CHECKING:
    from daskprs._core.actions import Action

WHY = "its time is over"


def interrupts(said: list[Action]) -> list[str]:
    """Return the reasons for which the job was cut short."""
    return [action.reason for action in said if isinstance(action, Interrupt)]


def sizes(said: list[Action]) -> list[int]:
    """Return the sizes of the leases that were given out."""
    return [len(action.lease.work) for action in said if isinstance(action, Submit)]


def slot_of(desk: Desk) -> SlotId:
    """Return the only slot that has a lease."""
    (slot,) = desk.leases
    return slot


@pytest.mark.parametrize(
    ("left_s", "mini_batch_s", "count"),
    [
        (100.0, 10.0, 8),
        (10.0 * MARGIN, 10.0, 1),
        (10.0, 10.0, 0),
        (0.1, None, 1),
        (0.0, None, 0),
        (-5.0, 0.0, 0),
    ],
)
def test_what_fits_goes_by_the_measured_time(
    left_s: float, mini_batch_s: float | None, count: int
) -> None:
    """Each has a margin; what nothing is known of may be tried."""
    assert fitting(left_s, mini_batch_s) == count


def test_calls_at_a_time_fit_as_a_whole() -> None:
    """A process that ends twelve calls of 12 s in 12 s does none within 11 s."""
    assert fitting(11.0, 1.0, 12) == 0
    assert fitting(12 * MARGIN, 1.0, 12) == 12
    assert fitting(30 * MARGIN, 1.0, 12) == 24
    assert fitting(0.1, None, 12) == 1


def test_a_lease_near_the_end_has_what_fits() -> None:
    """Mini-batches of 10 s: two fit into the 27 s that are left when the result is back."""
    desk = Desk(100)
    desk.tell(EndSet(38.0, why=WHY))
    assert sizes(desk.said) == [1]  # nothing is measured yet
    desk.tick(10.0)
    said = desk.do(slot_of(desk), 10.0)
    assert sizes(said) == [2]
    said = desk.tick(20.0) + desk.do(slot_of(desk), 10.0)
    assert sizes(said) == []
    assert interrupts(said) == [WHY]


def test_the_end_cuts_off_what_is_running_without_a_charge() -> None:
    """It is in no outcome: the journal of failures has nothing of it."""
    desk = Desk(3)
    desk.tell(EndSet(5.0, why=WHY))
    assert interrupts(desk.tick(4.0)) == []
    assert desk.tick(2.0) == [Interrupt(WHY)]
    assert desk.tick(100.0) == []
    assert desk.ledger.standing().mini_batches.failed == 0


def test_a_job_that_is_done_at_its_end_is_completed() -> None:
    """Whatever is left of its time."""
    desk = Desk(1)
    desk.tell(EndSet(5.0, why=WHY))
    desk.tick(4.9)
    assert desk.do(slot_of(desk))[-1] == Finish()


def test_an_end_may_come_nearer() -> None:
    """SIGTERM does so; and without an end, nothing is held back."""
    desk = Desk(100)
    desk.tell(EndSet(1e6, why="its deadline"))
    desk.tell(EndSet(3.0, why=WHY))
    assert interrupts(desk.tick(3.0)) == [WHY]


def test_a_job_without_workers_waits_until_its_end() -> None:
    """Workers may come, and do what fits."""
    desk = Desk(3, slots=0)
    desk.tell(EndSet(60.0, why=WHY))
    assert interrupts(desk.tick(50.0)) == []
    assert interrupts(desk.tick(10.0)) == [WHY]


def test_only_what_fits_goes_to_a_worker_that_ends() -> None:
    """The others get the rest, and the job goes on."""
    desk = Desk(100, slots=0)
    near, far = SlotId("tcp://near", 0, 0), SlotId("tcp://far", 0, 1)
    desk.tell(SlotAdded(near, ends_at_s=15.0))
    desk.tell(SlotAdded(far))
    desk.tick(10.0)
    said = desk.do(near, 10.0) + desk.do(far, 10.0)
    assert [action.slot for action in said if isinstance(action, Submit)] == [far]
    assert interrupts(desk.tick(100.0)) == []


def test_a_short_life_gets_one_try() -> None:
    """Else a job with mini-batches longer than the life of any worker would never try them."""
    desk = Desk(100)
    desk.do(slot_of(desk), 100.0)
    short = SlotId("tcp://short", 0, 1)
    assert sizes(desk.tell(SlotAdded(short, ends_at_s=50.0))) == [1]
    desk.do(short, 1.0)
    assert short not in desk.leases


def test_no_lease_is_continued_with_what_does_not_fit() -> None:
    """What runs goes on, alone."""
    desk = Desk(100)
    slot = slot_of(desk)
    desk.do(slot, 1.0)
    desk.tell(EndSet(desk.now_s + 2.5, why=WHY))
    work = desk.leases[slot].work
    running = tuple(one.mini_batch.index for one in work)
    said = desk.give(slot, running=running)
    (lease,) = [action.lease for action in said if isinstance(action, Submit)]
    assert (lease.continues is not None, len(lease.work)) == (True, 0)


def test_sigterm_for_an_agent_blames_no_mini_batch() -> None:
    """Any other death does, also while the job ends."""
    death = Death((outcome(3), outcome(4)))
    for returncode, blamed in ((-15, False), (-11, True)):
        exited = AgentExited("process000", returncode, "died", expected=False)
        given = returned(1, (), death=death, untouched=(5,), agent_events=(exited,))
        taken = given.terminated()
        assert (taken == given) is blamed
        if not blamed:
            assert (taken.death, taken.untouched, taken.vacant) == (None, (3, 4, 5), True)


def test_sigterm_for_a_stage_process_blames_no_mini_batch() -> None:
    """What it has raised before is a failure."""
    died = outcome(3)._replace(status=Status.PROCESS_DIED, stage_process="process000-00")
    raised = died._replace(index=4, status=Status.RUN_EXCEPTION)
    given = returned(1, (died, raised, outcome(5)), running=(6,))
    taken = given.terminated()
    left = [one.index for made in taken.results for one in made.outcomes]
    assert (left, taken.untouched, taken.running, taken.vacant) == ([4, 5], (3,), (6,), False)
