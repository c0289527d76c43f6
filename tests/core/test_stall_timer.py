"""How long a job may stand still."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from daskprs._core import backlog
from daskprs._core.actions import Ticked


def test_without_progress_for_too_long_the_job_fails(desk: Any) -> None:
    """Exactly as long as allowed is not too long."""
    it = desk(10, progress_update_timeout_s=100.0)
    it.tick(0.0)
    it.tick(100.0)
    assert it.abort is None
    it.tick(0.5)
    assert "progress_update_timeout=100 s" in it.abort.reason


def test_the_first_mini_batch_has_the_time_of_init_as_well(desk: Any) -> None:
    """A model may be loaded for longer than mini-batches run; once a process is up, it is."""
    limits = {"progress_update_timeout_s": 100.0, "first_progress_timeout_s": 500.0}
    it = desk(10, **limits)
    it.tick(0.0)
    it.tick(450.0)
    assert it.abort is None
    it.tick(60.0)
    assert it.abort is not None
    it = desk(10, **limits)
    it.do(next(iter(it.leases)))
    it.tick(0.0)
    it.tick(110.0)
    assert it.abort is not None


def test_a_driver_that_stood_still_blames_nobody_for_it(desk: Any) -> None:
    """It was stopped for an hour, say, and its workers with it; then all goes on."""
    it = desk(10, progress_update_timeout_s=100.0)
    it.tick(0.0)
    it.tell(Ticked(), 3600.0)
    assert it.abort is None
    it.tick(40.0)
    assert it.abort is None
    it.tick(1.0)
    assert it.abort is not None
    it = desk(10, slots=0, no_workers_timeout_s=100.0)
    it.tick(0.0)
    it.tell(Ticked(), 3600.0)
    assert it.abort is None


def test_a_charged_attempt_is_progress_and_one_that_is_not_charged_is_none(desk: Any) -> None:
    """Charged attempts come to an end; a process that begins nothing may be there for ever."""
    it = desk(2, progress_update_timeout_s=100.0, run_max_try=1000)
    slot = next(iter(it.leases))
    it.tick(0.0)
    it.tick(99.0)
    it.do(slot)
    it.tick(99.0)
    it.fail(slot)
    it.tick(99.0)
    it.die(slot)
    assert it.abort is None
    it.tick(2.0)
    assert it.abort is not None


def test_progress_is_not_waited_for_while_there_are_no_workers(desk: Any) -> None:
    """The clock stands still, and goes on where it stood."""
    it = desk(10, progress_update_timeout_s=100.0)
    slot = next(iter(it.leases))
    it.tick(0.0)
    it.tick(60.0)
    it.lose(slot)
    it.tick(1e6)
    it.add(1)
    it.tick(30.0)
    assert it.abort is None
    it.tick(20.0)
    assert it.abort is not None


@pytest.mark.parametrize("ahead", [False, True])
def test_making_the_plan_is_progress(desk: Any, a_mini_batch: Any, *, ahead: bool) -> None:
    """However long the input is shuffled before its first mini-batch: nobody was idle."""
    hours = [0.0]

    def plan() -> Any:
        for index in range(3):
            hours[0] += 1.0
            yield a_mini_batch(index)

    it = desk(plan(), ahead=ahead, progress_update_timeout_s=50.0)
    it.tell(Ticked(), 3600.0 * hours[0])
    assert it.abort is None


def test_making_the_plan_ahead_is_no_progress(
    desk: Any, a_mini_batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow one goes on for hours, and would hide that all processes hang."""
    monkeypatch.setattr(backlog, "AHEAD_AT_ONCE", 1)
    it = desk(map(a_mini_batch, count()), ahead=True, progress_update_timeout_s=100.0)
    it.tick(0.0)
    it.tick(0.0)
    it.tick(99.0)
    assert it.abort is None
    it.tick(2.0)
    assert "progress_update_timeout=100 s" in it.abort.reason


@pytest.mark.parametrize("ahead", [False, True])
def test_a_new_mini_batch_for_a_worker_that_has_some_is_no_progress(
    desk: Any, a_mini_batch: Any, *, ahead: bool
) -> None:
    """Dask may compute partitions for hours, while the processes of their worker hang."""

    def plan() -> Any:
        for index in count():
            yield a_mini_batch(index, worker="tcp://host0")
            yield None

    it = desk(plan(), ahead=ahead, progress_update_timeout_s=100.0)
    it.tick(0.0)
    it.tick(0.0)
    for _ in range(99):
        it.tick(1.0)
    assert it.abort is None
    it.tick(2.0)
    assert "progress_update_timeout=100 s" in it.abort.reason


def test_without_workers_a_job_waits_for_ever_unless_told_otherwise(desk: Any) -> None:
    """Progress shows why nothing moves; that is enough by default."""
    it = desk(10, slots=0)
    it.tick(0.0)
    it.tick(1e9)
    assert it.abort is None


def test_no_workers_timeout_ends_the_wait(desk: Any) -> None:
    """At the start, and when all have gone later."""
    it = desk(10, slots=1, no_workers_timeout_s=60.0)
    slot = next(iter(it.leases))
    it.tick(1000.0)
    it.lose(slot)
    it.tick(60.0)
    assert it.abort is None
    it.tick(1.0)
    assert "no_workers_timeout=60 s" in it.abort.reason
