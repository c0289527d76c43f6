"""How much may fail: the job ends on the very event that is too much."""

from __future__ import annotations

from typing import Any

import pytest

from daskprs._core.outcomes import Failure, Status
from daskprs._core.pieces import PiecesEnd, Recovered


@pytest.mark.parametrize("allowed", [0, 1, 4])
def test_one_failed_mini_batch_more_than_allowed_ends_the_job(desk: Any, allowed: int) -> None:
    """Just as many as allowed do not; the next one does, and is the last that is heard of."""
    it = desk(10, run_max_try=1, allowed_failed_count=allowed)
    slot = next(iter(it.leases))
    for _ in range(allowed):
        it.fail(slot)
    assert it.abort is None
    it.fail(slot)
    assert len(it.given_up) == allowed + 1
    assert f"allowed_failed_count={allowed}" in it.abort.reason
    assert it.abort.failure.message == "boom"


def test_after_the_end_nothing_is_heard_any_more(desk: Any) -> None:
    """What arrives later is dropped."""
    it = desk(10, slots=2, run_max_try=1, allowed_failed_count=0)
    first, second = it.leases
    it.fail(first)
    assert it.do(second) == []
    assert it.tick(1e9) == []


def test_within_one_lease_what_comes_before_the_end_is_committed_and_what_follows_is_not(
    desk: Any, an_outcome: Any
) -> None:
    """The order of outcomes decides, and the abort comes last."""
    it = desk(1000, allowed_failed_count=0, run_max_try=1)
    slot = next(iter(it.leases))
    it.do(slot, seconds_each=0.01)
    one, two, three, *_ = it.indexes(slot)
    bad = an_outcome(two, status=Status.RUN_EXCEPTION)
    said = it.give(slot, an_outcome(one), bad, an_outcome(three))
    assert one in it.committed
    assert three not in it.committed
    assert said[-1] is it.abort


def test_the_rest_of_the_lease_that_ends_the_job_waits_for_a_resume(
    desk: Any, an_outcome: Any
) -> None:
    """Each mini-batch of the plan still counts in one state."""
    it = desk(1000, allowed_failed_count=0, run_max_try=1)
    slot = next(iter(it.leases))
    it.do(slot, seconds_each=0.01)
    before, (one, two, *_) = it.ledger.standing(), it.indexes(slot)
    it.give(slot, an_outcome(one), an_outcome(two, status=Status.RUN_EXCEPTION))
    after = it.ledger.standing()
    assert after.running == 0
    assert after.waiting == before.waiting + before.running - 2


@pytest.mark.parametrize("threshold", [0, 3, 10])
def test_error_threshold_counts_items_of_successful_mini_batches_too(
    desk: Any, threshold: int
) -> None:
    """Fewer results than items are failed items; they fail no mini-batch."""
    it = desk(100, error_threshold=threshold)
    slot = next(iter(it.leases))
    for _ in range(threshold):
        it.do(slot, total=3, succeeded=2)
    assert it.abort is None
    it.do(slot, total=3, succeeded=2)
    assert f"{threshold + 1} item" in it.abort.reason
    assert it.given_up == []


def test_only_final_failures_count(desk: Any) -> None:
    """An attempt that is followed by another costs no budget."""
    it = desk(1, error_threshold=0, allowed_failed_count=0, run_max_try=3)
    slot = next(iter(it.leases))
    it.fail(slot)
    it.fail(slot)
    it.do(slot)
    assert it.finished


def test_more_results_than_items_make_up_for_nothing(desk: Any) -> None:
    """A surplus in one mini-batch does not cover for another."""
    it = desk(2, error_threshold=0)
    slot = next(iter(it.leases))
    it.do(slot, total=1, succeeded=50)
    it.do(slot, total=2, succeeded=1)
    assert it.abort is not None


@pytest.mark.parametrize(
    ("ends", "aborts"),
    [
        ([Status.RUN_TIMEOUT, Status.LOAD_TIMEOUT], True),
        ([Status.RUN_TIMEOUT, Status.RUN_EXCEPTION], False),
        ([Status.RUN_EXCEPTION, Status.RUN_TIMEOUT], False),
    ],
)
def test_a_mini_batch_that_only_runs_out_of_time_ends_the_job_if_it_is_to(
    desk: Any, *, ends: list[Status], aborts: bool
) -> None:
    """Whatever the thresholds say; one that failed otherwise in between does not."""
    it = desk(2, run_max_try=2, error_threshold=-1, fail_on_timeout=True)
    slot = next(iter(it.leases))
    for status in ends:
        it.fail(slot, status=status)
    assert it.given_up == [0]
    assert (it.abort is not None) is aborts
    if aborts:
        assert "mini-batch 0 ran out of time in all its 2 attempts" in it.abort.reason


def test_minus_one_ignores_a_threshold(desk: Any) -> None:
    """A job may fail in everything and still complete."""
    it = desk(10, error_threshold=-1, allowed_failed_count=-1, run_max_try=1)
    slot = next(iter(it.leases))
    for _ in range(10):
        it.fail(slot)
    assert it.finished


@pytest.mark.parametrize(
    ("failed", "percent", "ends"),
    [(3, 30, False), (4, 30, True), (0, 0, False), (1, 0, True), (7, 70.0, False), (1, 9.99, True)],
)
def test_percent_is_exact(desk: Any, *, failed: int, percent: float, ends: bool) -> None:
    """Of ten mini-batches exactly the allowed share may fail, in whatever floats it is given."""
    it = desk(10, allowed_failed_percent=percent, run_max_try=1)
    slot = next(iter(it.leases))
    for place in range(10):
        it.fail(slot) if place < failed else it.do(slot)
    assert (it.abort is not None) is ends
    assert it.finished is not ends


def test_percent_is_judged_once_every_mini_batch_has_been_tried(desk: Any) -> None:
    """Not while other leases hold some, whose rows are kept."""
    it = desk(3, slots=2, allowed_failed_percent=0, run_max_try=1)
    first, second = it.leases
    it.fail(first)
    assert len(it.given_up) == 1
    it.do(second)
    assert it.abort is None
    it.do(next(iter(it.leases)))
    assert "1 of 3 mini-batches failed" in it.abort.reason
    assert len(it.committed) == 2


def test_percent_is_judged_by_all_mini_batches(desk: Any) -> None:
    """The first failure of ten is not yet a hundred percent."""
    it = desk(4, allowed_failed_percent=25, run_max_try=1)
    slot = next(iter(it.leases))
    it.fail(slot)
    it.fail(slot)
    assert it.abort is None
    it.do(slot)
    assert it.abort is None
    it.do(slot)
    assert "2 of 4 mini-batches failed" in it.abort.reason


def test_empty_ranges_do_not_dilute_the_percentage(desk: Any) -> None:
    """One failed and one empty is one of one."""
    it = desk(2, allowed_failed_percent=50, run_max_try=1)
    slot = next(iter(it.leases))
    it.do(slot, total=0, succeeded=0, empty=True)
    it.fail(slot)
    assert "1 of 1" in it.abort.reason


def test_failed_items_of_recovered_mini_batches_count(desk: Any) -> None:
    """What an earlier run left undone is undone."""
    done = Recovered(total=5, succeeded=2)
    it = desk(2, error_threshold=2, recovered=lambda _: done)
    assert "3 items" in it.abort.reason


def test_one_failure_too_many_is_the_last_that_counts(desk: Any, an_outcome: Any) -> None:
    """A piece that passes before another one fails charges what the process holds."""
    it = desk(10, allowed_failed_count=1, run_max_try=1)
    slot = next(iter(it.leases))
    it.do(slot, 0.1)
    it.do(slot, 0.1)
    first, second, third = [one.mini_batch.index for one in it.leases[slot].work][:3]
    failed = {
        "status": Status.RUN_EXCEPTION,
        "failure": Failure("ValueError", "boom"),
        "succeeded": 0,
    }
    end = PiecesEnd(1, passed_before=True)
    it.give(
        slot,
        an_outcome(first, **failed),
        an_outcome(second, **failed),
        an_outcome(third, **failed, pieces=end),
    )
    assert it.given_up == [first, second]
    assert "2 mini-batches failed" in it.abort.reason
