"""Attempts that an endpoint refuses: nobody is to blame, at first, and they run again later."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from daskprs._core.actions import Interrupt, SlotsLost, Ticked
from daskprs._core.outcomes import Failure, Status
from daskprs._core.settling import MOST_THROTTLED

TOO_MANY = {
    "status": Status.THROTTLED,
    "failure": Failure("RateLimitError", "429"),
    "succeeded": 0,
}
SPENT = TOO_MANY | {"failure": Failure("RateLimitError", "insufficient_quota", retryable=False)}


def refuse(it: Any, slot: Any, **change: Any) -> None:
    """Let an endpoint refuse the lease of a slot; its process lives on."""
    it.do(slot, **{**TOO_MANY, **change})


def interrupts(it: Any) -> list[str]:
    """Return why the job was cut short."""
    return [one.reason for one in it.said if isinstance(one, Interrupt)]


def test_it_runs_again_when_the_endpoint_wants_it_and_costs_no_try(desk: Any) -> None:
    it = desk(1, run_max_try=1)
    (slot,) = it.leases
    refuse(it, slot, wait_s=5.0)
    assert not it.leases
    assert it.ledger.standing().throttled == 1
    assert 5.0 <= it.ledger.standing().retry_in_s <= 6.25
    it.tick(6.25)
    it.do_all()
    assert (it.committed, it.finished) == ([0], True)
    assert [(one.final, one.charged) for one in it.failures] == [(False, False)]


def test_an_endpoint_that_does_not_say_when_is_asked_less_and_less_often(desk: Any) -> None:
    it = desk(1)
    (slot,) = it.leases
    waits = []
    for _ in range(8):
        refuse(it, slot)
        waits.append(it.ledger.standing().retry_in_s)
        it.tick(60.0)
    assert all(0.5 <= wait / 2**number <= 1 for number, wait in enumerate(waits[:6]))
    assert waits[-1] <= 60


def test_it_says_nothing_about_its_process(desk: Any) -> None:
    """What fails after it is charged at once, as in a sound process."""
    it = desk(2, slots=1, run_max_try=1, allowed_failed_count=-1)
    (slot,) = it.leases
    refuse(it, slot)
    it.fail(slot, ends=False)
    assert it.given_up == [1]


def test_one_that_is_refused_while_others_succeed_is_charged_in_the_end(desk: Any) -> None:
    it = desk(4 * MOST_THROTTLED, slots=1, run_max_try=2, allowed_failed_count=-1)
    (slot,) = it.leases
    for _ in range(MOST_THROTTLED + 1):
        while it.indexes(slot) != [0]:
            it.do(slot)
        refuse(it, slot)
        it.tick(60.0)
    assert not it.given_up
    charged = [one.charged for one in it.failures]
    assert charged == [False] * MOST_THROTTLED + [True]
    while it.indexes(slot) != [0]:
        it.do(slot)
    refuse(it, slot)
    assert it.given_up == [0]


def test_where_most_are_refused_by_chance_nobody_is_charged(desk: Any) -> None:
    """Others succeed all the while."""
    it = desk(200, slots=8, run_max_try=1, progress_update_timeout_s=1e6)
    chance = Random(5)  # noqa: S311
    while not it.finished:
        for slot in [*it.leases]:
            if chance.random() < 0.7:
                refuse(it, slot, wait_s=1.0)
            else:
                it.do(slot)
        it.tick(1.0)
    refused = Counter(one.mini_batch.index for one in it.failures)
    assert max(refused.values()) > MOST_THROTTLED + 2
    assert not any(one.charged for one in it.failures)


def test_one_that_is_refused_as_all_are_is_never_charged(desk: Any) -> None:
    it = desk(1, run_max_try=1, progress_update_timeout_s=1e6)
    (slot,) = it.leases
    for _ in range(3 * MOST_THROTTLED):
        refuse(it, slot)
        it.tick(60.0)
    assert not it.given_up


def test_a_spent_quota_ends_the_job_once_what_is_under_way_has_come_back(desk: Any) -> None:
    it = desk(3, slots=2)
    first, second = it.leases
    refuse(it, first, **SPENT)
    assert not interrupts(it)
    it.tick(25.0)
    assert not interrupts(it)
    it.do(second)
    for _ in range(2):
        assert not interrupts(it)
        it.tell(Ticked(waits=True), 3.0)  # what was refused
    (why,) = interrupts(it)
    assert "the quota of the endpoint is spent: RateLimitError" in why
    assert 1 in it.committed
    assert not it.given_up


def test_a_call_that_does_not_come_back_keeps_no_job_without_quota(desk: Any) -> None:
    it = desk(2, slots=2, shutdown_timeout_s=20.0)
    refuse(it, next(iter(it.leases)), **SPENT)
    it.tick(19.0)
    assert not interrupts(it)
    it.tick(1.0)
    assert interrupts(it)


def test_a_pause_that_is_too_long_ends_the_job(desk: Any) -> None:
    it = desk(1, progress_update_timeout_s=100.0)
    (slot,) = it.leases
    refuse(it, slot, wait_s=101.0)
    it.tick(1.0)
    it.tick(3.0)
    assert interrupts(it) == [
        "the endpoint wants no request for 101 s, more than progress_update_timeout=100 s"
    ]


def test_an_endpoint_that_refuses_everything_for_too_long_ends_the_job(desk: Any) -> None:
    """The job is not to blame: a resume does the rest."""
    it = desk(1, progress_update_timeout_s=100.0)
    (slot,) = it.leases
    for _ in range(10):
        if slot in it.leases:
            refuse(it, slot, wait_s=20.0)
        it.tick(26.0)
    (why,) = interrupts(it)
    assert "the endpoint wanted fewer requests" in why
    assert it.abort is None


def test_so_does_it_where_the_worker_has_just_gone(desk: Any) -> None:
    """Only without workers for too long, the job fails."""
    for without_s, interrupted in ((1.0, True), (501.0, False)):
        it = desk(1, progress_update_timeout_s=1000.0, no_workers_timeout_s=500.0)
        (slot,) = it.leases
        refuse(it, slot, wait_s=60.0)
        it.tick(999.0 if interrupted else 10.0)
        it.tell(SlotsLost((slot,)), 2.0)
        it.tick(without_s)
        assert (bool(interrupts(it)), it.abort is None) == (interrupted, interrupted)


def test_calls_that_wait_for_permits_stand_still_as_they_should(desk: Any) -> None:
    it = desk(1, progress_update_timeout_s=100.0)
    for _ in range(100):
        it.tell(Ticked(waits=True), 10.0)
    assert it.abort is None
    for _ in range(12):
        it.tell(Ticked(), 10.0)
    assert it.abort is not None
