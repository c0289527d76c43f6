"""What the ledger decides: attempts, blame, and what is handed back."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from daskprs._core import backlog
from daskprs._core.actions import Abort, Commit, SlotAdded, SlotId, SlotsLost, Submit
from daskprs._core.columnar import ColumnBatch
from daskprs._core.outcomes import Failure, Status
from daskprs._core.pieces import Recovered
from daskprs._core.placement import ELSEWHERE_S
from daskprs.errors import InputError
from tests.support.returns import returned


def test_a_job_without_failures_commits_each_mini_batch_once_and_finishes(desk: Any) -> None:
    """Every mini-batch is committed once, and then the job is done."""
    it = desk(200, slots=3)
    it.do_all()
    assert sorted(it.committed) == list(range(200))
    assert it.finished


def test_an_empty_plan_finishes_without_a_worker(desk: Any) -> None:
    """A job without mini-batches ends at the first turn, though it has no slot."""
    it = desk(0, slots=0)
    it.tick(0)
    assert it.finished


def test_a_plan_is_drawn_no_further_than_the_slots_can_take(desk: Any, a_mini_batch: Any) -> None:
    """An endless plan is no trouble: what is not leased is not made."""
    drawn = count()
    it = desk((a_mini_batch(next(drawn)) for _ in count()), slots=4)
    for slot in list(it.leases):
        it.do(slot)
    assert next(drawn) == 8


def test_a_plan_of_unknown_length_is_drawn_ahead_in_parts(
    desk: Any, a_mini_batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a job soon knows how much is left of it, and an endless plan is no trouble."""
    monkeypatch.setattr(backlog, "MOST_AHEAD", 1000)
    for length in (300, 100_000):
        drawn = count()
        it = desk((a_mini_batch(next(drawn)) for _ in range(length)), slots=4, ahead=True)
        for _ in range(10):
            for slot in list(it.leases):
                it.do(slot)
        assert it.ledger.standing().planned == (300 if length == 300 else None)
        assert next(drawn) <= 1000 + backlog.AHEAD_AT_ONCE + 10 * 4


def test_a_plan_that_takes_long_is_made_ahead_by_one_at_an_event(
    desk: Any, a_mini_batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a file of a store is opened for each: idle processes would wait for 64 of them."""
    now, drawn = count(), count()
    monkeypatch.setattr(backlog, "time", SimpleNamespace(monotonic=lambda: next(now)))
    desk((a_mini_batch(next(drawn)) for _ in range(1000)), slots=1, ahead=True)
    assert next(drawn) <= 2


def test_a_failed_attempt_is_followed_by_another_until_the_tries_are_spent(desk: Any) -> None:
    """run_max_try attempts, then the mini-batch is given up."""
    it = desk(1, run_max_try=3)
    slot = next(iter(it.leases))
    for _ in range(3):
        it.fail(slot)
    assert [(one.outcome.attempt, one.final, one.charged) for one in it.failures] == [
        (1, False, True),
        (2, False, True),
        (3, True, True),
    ]
    assert it.finished


def test_what_no_retry_can_mend_is_given_up_at_once(desk: Any) -> None:
    """A failure that says so is final, whatever tries are left."""
    it = desk(1)
    broken = Failure("LoadError", "cut short", retryable=False)
    it.fail(next(iter(it.leases)), failure=broken)
    assert it.given_up == [0]


def test_a_success_after_a_failure_is_committed_and_counts_as_mended(desk: Any) -> None:
    """The error is known even of a job that completes."""
    it = desk(1)
    slot = next(iter(it.leases))
    it.fail(slot)
    it.do(slot)
    assert it.committed == [0]
    assert it.finished
    assert it.ledger.headline is None
    assert str(it.ledger.errors.mended) == "1 × ValueError"
    assert it.ledger.errors.mended.first.message == "boom"


def test_the_headline_is_of_a_mini_batch_that_failed_in_the_end(desk: Any) -> None:
    """Not the error that came first, nor that of a process that did not come up."""
    it = desk(3, run_max_try=2, allowed_failed_count=0)
    slot = next(iter(it.leases))
    it.fail_init(slot)
    it.fail(slot, failure=Failure("ConnectionError", "reset"))
    assert it.ledger.headline is None
    it.do(slot)
    it.fail(slot, failure=Failure("KeyError", "'name'"))
    assert str(it.ledger.errors.pending) == "1 × KeyError"
    it.fail(slot, failure=Failure("IndexError", "7"))
    assert it.abort.failure == Failure("IndexError", "7", where="mini-batch 1, attempt 2")
    errors = it.ledger.errors
    assert [str(kinds) for kinds in errors] == [
        "1 × IndexError",
        "1 × ConnectionError",
        "",
        "1 × ValueError",
    ]


def test_a_job_that_fails_for_another_reason_has_no_headline(desk: Any) -> None:
    """A retry has mended the only error that there was."""
    it = desk(3, error_threshold=0)
    slot = next(iter(it.leases))
    it.fail(slot)
    it.do(slot)
    it.do(slot, succeeded=0)
    assert it.abort.reason == "1 item failed, more than error_threshold=0"
    assert it.abort.failure is None


def test_starts_are_the_headline_where_no_process_came_up(desk: Any) -> None:
    """Nothing was settled for too long, and that is why."""
    it = desk(3, slots=2, progress_update_timeout_s=100.0)
    it.fail_init(next(iter(it.leases)))
    it.tick(101.0)
    assert "progress_update_timeout" in it.abort.reason
    assert it.abort.failure.message == "boom"


def test_a_mini_batch_that_an_innocent_death_took_along_counts_as_mended(desk: Any) -> None:
    """Neither was charged; the second attempt of one went well, and the other is the killer."""
    it = desk(20)
    slot = next(iter(it.leases))
    it.do(slot, seconds_each=0.01)
    first, second = it.indexes(slot)[:2]
    it.die(slot, 0, 1)
    while first not in it.indexes(slot):
        it.do(slot)
    it.do(slot)
    assert it.ledger.errors.mended.counts.total() == 1
    assert it.ledger.errors.pending.counts.total() == 1
    assert second not in it.committed


def test_a_retry_comes_before_new_work(desk: Any) -> None:
    """What failed is tried again next, by the only slot there is."""
    it = desk(5)
    slot = next(iter(it.leases))
    it.fail(slot)
    assert it.indexes(slot) == [0]


def test_a_retry_prefers_another_slot(desk: Any) -> None:
    """What failed on one slot waits for another one while there is other work."""
    it = desk(9, slots=2)
    first, second = it.leases
    it.fail(first)
    assert it.indexes(first) == [2]
    it.do(second)
    assert it.indexes(second) == [0]


def test_a_retry_does_not_wait_for_another_slot_when_there_is_nothing_else(desk: Any) -> None:
    """A slot that is free takes even what failed on it."""
    it = desk(2, slots=2)
    first, _ = it.leases
    it.fail(first)
    assert it.indexes(first) == [0]


def test_a_late_answer_of_a_lease_that_was_lost_is_dropped(desk: Any, an_outcome: Any) -> None:
    """Only one of two attempts counts, whichever order they end in."""
    it = desk(1, slots=2)
    [slot] = it.leases
    old = it.leases[slot]
    it.lose(slot)
    assert it.tell(returned(old.id, (an_outcome(0),))) == []
    it.do_all()
    assert it.committed == [0]


def test_an_answer_of_another_attempt_settles_nothing_and_loses_nothing(
    desk: Any, an_outcome: Any
) -> None:
    """A mini-batch whose answer does not fit runs again."""
    it = desk(1)
    slot = next(iter(it.leases))
    it.give(slot, an_outcome(0, attempt=7), an_outcome(99))
    assert it.committed == []
    it.do_all()
    assert it.committed == [0]


def test_a_retry_is_not_settled_by_an_answer_of_the_attempt_before(
    desk: Any, an_outcome: Any
) -> None:
    """Also in a process with which all was well: whole groups are committed there."""
    it = desk(3)
    slot = next(iter(it.leases))
    it.do(slot)
    it.give(slot, an_outcome(it.indexes(slot)[0], attempt=7))
    assert it.committed == [0]
    it.do_all()
    assert sorted(it.committed) == [0, 1, 2]


def test_what_is_still_running_keeps_its_slot_and_the_rest_goes_to_others(
    desk: Any, an_outcome: Any
) -> None:
    """A straggler holds nothing up but its own slot."""
    it = desk(1000)
    slot = next(iter(it.leases))
    it.do(slot, seconds_each=0.01)
    one, two, three, *rest = it.indexes(slot)
    old = it.leases[slot].id
    it.give(slot, an_outcome(one), running=(two, three), untouched=tuple(rest), recalled=True)
    assert it.leases[slot].continues == old
    assert it.leases[slot].work == ColumnBatch()
    other = it.add(1)
    assert it.indexes(other)[: len(rest)] == rest
    it.give(slot, an_outcome(two), running=(three,), recalled=True)
    assert it.leases[slot].work == ColumnBatch(), (
        "an agent of which work was taken back takes no more"
    )
    it.give(slot, an_outcome(three), recalled=True)
    assert {two, three} <= set(it.committed)
    assert it.leases[slot].continues is None


def test_a_slot_gets_more_before_it_is_through(desk: Any, an_outcome: Any) -> None:
    """What it told of is made up for; what was its own goes on being its own."""
    it = desk(1000)
    slot = next(iter(it.leases))
    it.do(slot, seconds_each=0.01)
    one, *rest = it.indexes(slot)
    old = it.leases[slot].id
    it.give(slot, an_outcome(one, elapsed_s=0.01), running=tuple(rest))
    lease = it.leases[slot]
    assert (lease.continues, len(lease.work) > 0) == (old, True)
    assert not set(it.indexes(slot)) & {one, *rest}
    it.lose(slot)
    other = it.add(1)
    assert it.indexes(other)[0] == rest[0]


def test_a_death_with_one_suspect_is_charged_to_it_and_it_runs_alone(desk: Any) -> None:
    """The one that ran pays; next time nothing is loaded ahead."""
    it = desk(1000)
    slot = next(iter(it.leases))
    it.do(slot, seconds_each=0.01)
    work = it.indexes(slot)
    it.die(slot, 1)
    assert [(one.mini_batch.index, one.charged) for one in it.failures] == [(work[1], True)]
    leases = []
    while it.leases and work[1] not in it.committed:
        leases.append(it.leases[slot])
        it.do(slot)
    assert [len(leases[-1].work), leases[-1].prefetch] == [1, False]


def test_a_death_with_several_suspects_is_charged_to_none_and_each_runs_alone(desk: Any) -> None:
    """Nobody knows which it was: neither pays, and a second death tells."""
    it = desk(1000, run_max_try=1)
    slot = next(iter(it.leases))
    it.do(slot, seconds_each=0.01)
    first, second, *_ = it.indexes(slot)
    it.die(slot, 0, 1)
    assert {(one.charged, one.final) for one in it.failures} == {(False, False)}
    it.do(slot)
    assert it.indexes(slot) == [first]
    it.die(slot, 0)
    assert it.given_up == [first]
    assert it.indexes(slot) == [second]
    it.do(slot)
    assert second in it.committed


def test_what_finished_before_a_death_and_got_lost_runs_alone_and_uncharged(desk: Any) -> None:
    """It may be the cause; it has done nothing wrong yet."""
    it = desk(1000)
    slot = next(iter(it.leases))
    it.do(slot, seconds_each=0.01)
    lost, running, *_ = it.indexes(slot)
    it.die(slot, 1, alone=(lost,))
    assert [one.mini_batch.index for one in it.failures] == [running]
    assert it.indexes(slot) == [lost]
    assert not it.leases[slot].prefetch


def test_a_changed_input_ends_the_job_whatever_the_budgets(desk: Any) -> None:
    """It is not tried again, and the job names it, not the error that the script had before."""
    it = desk(3, run_max_try=5)
    first, *_ = it.indexes(next(iter(it.leases)))
    it.fail(next(iter(it.leases)))
    changed = Failure("INPUT_CHANGED", "a.csv: the file has changed", retryable=False)
    it.fail(next(iter(it.leases)), status=Status.INPUT_CHANGED, failure=changed)
    assert it.failures[0].mini_batch.index == first
    assert [one.final for one in it.failures] == [False, True]
    aborts = [one for one in it.said if isinstance(one, Abort)]
    changed = changed._replace(where=f"mini-batch {first}, attempt 2")
    assert aborts == [Abort("a file of its input has changed since it began", changed)]
    assert it.committed == []


def test_a_lost_worker_charges_no_try(desk: Any) -> None:
    """With a single try, a mini-batch outlives the loss of its worker."""
    it = desk(1, run_max_try=1)
    it.lose(next(iter(it.leases)))
    it.do(it.add(1))
    assert it.committed == [0]
    assert [(one.outcome.status, one.charged, one.final) for one in it.failures] == [
        (Status.NODE_LOST, False, False)
    ]


def test_what_was_alone_on_too_many_lost_workers_is_given_up(desk: Any) -> None:
    """The mini-batch may have ended the workers: after max_node_losses it is NODE_LOST."""
    it = desk(1, max_node_losses=3)
    for number in range(1, 4):
        it.lose(next(iter(it.leases)))
        it.add(number)
    assert it.given_up == [0]
    assert it.failures[-1].outcome.status is Status.NODE_LOST
    assert it.finished


def test_a_lease_that_waited_on_lost_workers_is_not_charged(desk: Any) -> None:
    """Its data was not there yet: another one ends the workers."""
    it = desk(1, max_node_losses=1)
    for number in range(1, 4):
        slot, lease = it.leases.popitem()
        it.tell(SlotsLost((slot,), waited=frozenset({lease.id})))
        it.add(number)
    assert it.failures == []
    it.do(next(iter(it.leases)))
    assert it.committed == [0]


def test_a_lost_worker_is_lost_once_however_many_slots_it_had(desk: Any) -> None:
    """What was on one of them is not given to another one, which has gone with it."""
    it = desk(1, slots=4, max_node_losses=2)
    (busy,) = it.leases
    slots = [SlotId(busy.worker, number, busy.node) for number in range(4)]
    assert not any(isinstance(one, Submit) for one in it.lose(*slots))
    it.do(it.add(4))
    assert it.committed == [0]
    assert len(it.failures) == 1


def test_what_was_on_a_lost_worker_waits_for_another_node(desk: Any) -> None:
    """The other workers of its node may be gone as well, and be heard of later."""
    it = desk(2)
    there = it.add(0, node=1)
    here = next(slot for slot in it.leases if slot != there)
    it.tell(SlotAdded(SlotId("tcp://another", 0, here.node)))
    it.lose(here)
    assert list(it.leases) == [there]
    it.tick(ELSEWHERE_S)
    assert [slot.worker for slot in it.leases] == [there.worker, "tcp://another"]


def test_of_a_large_lease_that_is_lost_nobody_counts_a_loss(desk: Any) -> None:
    """What may not have begun is not to blame, even where one loss is the limit."""
    it = desk(1000, max_node_losses=1)
    slot = next(iter(it.leases))
    it.do(slot, seconds_each=0.001)
    lost = it.indexes(slot)
    assert len(lost) > 1
    it.lose(slot)
    again = it.add(1)
    assert it.indexes(again) == lost[:1]
    assert not it.leases[again].prefetch
    it.do_all()
    assert sorted(it.committed) == list(range(1000))


def test_a_mini_batch_that_ends_every_worker_is_found_among_thousands(desk: Any) -> None:
    """Two losses isolate it and max_node_losses convict it; everything else is committed."""
    killer, losses = 7_777, 0
    it = desk(20_000, max_node_losses=3)
    for number in count(1):
        slot = next(iter(it.leases), None)
        if slot is None:
            break
        if killer in it.indexes(slot):
            it.lose(slot)
            losses += 1
            it.add(number)
        else:
            it.do(slot, seconds_each=0.00001)
    assert it.given_up == [killer]
    assert len(it.committed) == 19_999
    assert losses <= 2 + 3


def test_no_work_goes_to_a_slot_that_has_gone(desk: Any) -> None:
    """A lost slot is forgotten, whether it was busy or not, and however often it is lost."""
    it = desk(10, slots=2)
    first, second = it.leases
    it.lose(first)
    it.lose(first)
    said = it.do(second)
    assert [one.slot for one in said if isinstance(one, Submit)] == [second]


def test_a_slot_that_is_announced_twice_is_one_slot(desk: Any) -> None:
    """Hearing of a slot again changes nothing."""
    it = desk(10)
    it.add()
    assert len([one for one in it.said if isinstance(one, Submit)]) == 1


def test_recovered_mini_batches_are_counted_and_not_run(desk: Any) -> None:
    """A resume settles at once what an earlier run has committed."""
    done = Recovered(total=5, succeeded=4)
    it = desk(10, recovered=lambda one: done if one.index % 2 else None)
    it.do_all()
    standing = it.ledger.standing()
    assert it.committed == [0, 2, 4, 6, 8]
    assert standing.recovered == 5
    assert standing.mini_batches == (10, 10, 0)
    assert standing.items == (30, 25, 5)
    assert it.finished


def test_a_job_that_was_done_already_finishes_without_a_worker(desk: Any) -> None:
    """Where everything is recovered, no slot is waited for."""
    done = Recovered(total=1, succeeded=1)
    it = desk(3, slots=0, recovered=lambda _: done)
    it.tick(0)
    assert it.finished


def test_empty_ranges_are_committed_and_count_nowhere(desk: Any) -> None:
    """A range in which no row starts is neither a mini-batch nor an item."""
    it = desk(2)
    slot = next(iter(it.leases))
    it.do(slot, total=0, succeeded=0, empty=True)
    it.do(slot)
    assert it.committed == [0, 1]
    assert it.ledger.standing().mini_batches == (1, 1, 0)


def test_an_empty_partition_counts_as_a_mini_batch(desk: Any, a_mini_batch: Any) -> None:
    """The plan says of it that it has no rows, so a resume counts it, too."""
    it = desk(iter([a_mini_batch(0, 0), a_mini_batch(1, 5)]))
    slot = next(iter(it.leases))
    said = it.do(slot, total=0, succeeded=0, empty=True)
    assert it.ledger.standing().mini_batches == (2, 1, 0)
    commits = [one for one in said if isinstance(one, Commit)]
    assert [list(one.made.outcomes.column("empty")) for one in commits] == [[False]]
    it.ledger.take_back(said)
    assert it.ledger.standing().mini_batches == (2, 0, 0)


@pytest.mark.parametrize(("total", "items", "counted"), [(7, 5, 7), (0, 5, 5), (0, None, 1)])
def test_all_items_of_a_given_up_mini_batch_count_as_failed(
    desk: Any, a_mini_batch: Any, total: int, items: int | None, counted: int
) -> None:
    """As many as were loaded, else as were planned, else one."""
    it = desk(iter([a_mini_batch(0, items)]), run_max_try=1)
    it.fail(next(iter(it.leases)), total=total)
    assert it.ledger.standing().items == (counted, 0, counted)


def test_a_plan_that_breaks_ends_the_job_with_its_message_and_keeps_what_was_done(
    desk: Any, a_mini_batch: Any
) -> None:
    """An unreadable file that shows late costs nothing that is finished."""

    def plan() -> Any:
        yield a_mini_batch(0)
        msg = "trips.csv: not UTF-8"
        raise InputError(msg)

    it = desk(plan())
    it.do_all()
    assert it.committed == [0]
    assert it.abort.reason == "trips.csv: not UTF-8"


def test_a_plan_that_breaks_in_somebody_elses_code_shows_the_traceback(desk: Any) -> None:
    """Where the message was not written for users, the whole story is told."""

    def plan() -> Any:
        yield from ()
        raise ZeroDivisionError

    it = desk(plan())
    assert "in plan" in it.abort.failure.traceback


def test_standing_tells_what_is_under_way(desk: Any) -> None:
    """Running, waiting, planned and expected are told apart."""
    it = desk(6, slots=2)
    first, second = it.leases
    it.fail(first)
    it.lose(second)
    standing = it.ledger.standing()
    assert (standing.running, standing.waiting, standing.expected) == (1, 2, 6)
    assert standing.mini_batches.total == 3
    assert not standing.plan_complete


def test_what_could_not_be_committed_is_not_counted(desk: Any, an_outcome: Any) -> None:
    """A full disk: neither mini-batches nor items are said to be done, empty ranges included."""
    it = desk(1000)
    slot = next(iter(it.leases))
    it.do(slot, seconds_each=0.001)
    before = it.ledger.standing()
    first, second, *_ = it.indexes(slot)
    half, empty = an_outcome(first, total=2), an_outcome(second, total=0, succeeded=0, empty=True)
    said = it.give(slot, half, empty)
    counted = it.ledger.standing()
    assert counted.items.failed == before.items.failed + 1
    assert counted.mini_batches.succeeded == before.mini_batches.succeeded + 1
    it.ledger.take_back(said)
    taken_back = it.ledger.standing()
    assert taken_back.items == before.items
    assert taken_back.mini_batches.succeeded == before.mini_batches.succeeded
    assert taken_back.mini_batches.total - counted.mini_batches.total == 1, "an empty range"
