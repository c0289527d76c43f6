"""What progress says: how far, how fast, how long, what runs, and why nothing moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskprs._core.events import ProgressReported, SlotsChanged
from daskprs._core.outcomes import Failure
from daskprs._report.humanize import counted, duration, rough_range, rounded
from daskprs._report.job_view import JobWatch, RateMeter, View
from daskprs._report.progress_text import (
    at_work_text,
    counts_text,
    fraction_done,
    now_text,
    progress_text,
    slot_text,
)
from daskprs._report.remaining_time import TimeLeft
from tests.support.job_events import attempt, job_ended, job_started, slot, standing, stood

if TYPE_CHECKING:
    from daskprs._core.events import Progress, SlotState

INIT = tuple(slot("init", since_s, process=n) for n, since_s in enumerate((41, 40, 39, 38)))
STRAGGLER = (
    slot("idle", 60, process=0),
    slot("idle", 50, process=1),
    slot("running", 50, 17, process=3),
)
RUNNING = (slot("running", 9, 4, process=0), slot("running", 30, 5, process=1))
LOADING = (slot("loading", 12, 3, process=0), slot("init", 20, process=1))
STARTING = (slot("starting", 3), slot("starting", 2))
UNKNOWN = {"plan_complete": False, "expected": None}


def seen(look: ProgressReported, slots: int = 0) -> View:
    """Return the view of a job that was looked at once."""
    watch = JobWatch()
    for event in (job_started(), SlotsChanged(1, slots), look):
        watch.tell(event)
    view = watch.view()
    assert view is not None
    return view


@pytest.mark.parametrize(
    ("done", "quiet_s", "slots", "offered", "why"),
    [
        (3, 2.0, (slot("running", 2, 17),), 2, ""),
        (0, 0.9, STARTING, 2, ""),
        (0, 3.0, (), 0, "waiting for workers for 3 s"),
        (3, 90.0, INIT, 0, "waiting for workers for 1 min 30 s"),
        (0, 3.0, (), 4, "agents start for 3 s"),
        (0, 3.0, STARTING, 2, "agents start for 3 s on 2 of 2 processes"),
        (0, 4.0, (slot("starting", 0.0),), 2, "agents start for 4 s on 1 of 1 process"),
        (0, 41.0, INIT, 4, "init() runs for 41 s on 4 of 4 processes, timeout in 59 min 19 s"),
        (
            *(3, 50.0, STRAGGLER, 3),
            "mini-batch 17 runs for 50 s on node 0 process003, timeout in 10 s, 2 tries left",
        ),
        (
            *(3, 30.0, RUNNING, 2),
            (
                "mini-batch 5 runs for 30 s on node 0 process001, timeout in 30 s, 2 tries left, "
                "1 process more"
            ),
        ),
        (3, 1.0, RUNNING, 2, "mini-batch 5 runs for 30 s on node 0 process001, timeout in 30 s"),
        (3, 12.0, LOADING, 2, "mini-batch 3 loads for 12 s on node 0 process000, timeout in 9 min"),
        (3, 6.0, (slot("shutdown", 4), slot("idle", 9)), 2, "shutdown() runs for 4 s on 1 of 2"),
        (3, 6.0, (slot("idle", 6),), 1, "agents are idle for 6 s on 1 of 1 process"),
        (10, 0.0, (), 2, "stopping processes"),
        (10, 0.0, (slot("shutdown", 4),), 2, "stopping processes, shutdown() runs for 4 s on 1"),
    ],
)
def test_what_happens_now(
    done: int, quiet_s: float, slots: tuple[SlotState, ...], offered: int, why: str
) -> None:
    """What takes long, or why nothing moves; nothing while the job moves."""
    said = now_text(seen(stood(done, slots=slots, quiet_s=quiet_s), offered))
    assert said.startswith(why)
    assert bool(said) == bool(why)


def test_a_job_that_only_waits_for_retries_says_when_the_next_one_begins() -> None:
    """However long ago something was settled; while others run, these are shown."""
    delayed = {"delayed": 1, "retry_in_s": 7.6, "waiting": 1}
    idle = (slot("idle", 1),)
    assert now_text(seen(stood(3, slots=idle, **delayed), 1)) == "waiting for a retry in 8 s"
    several = seen(stood(3, slots=idle, **delayed | {"delayed": 12}), 1)
    assert now_text(several).endswith("in 8 s, 12 mini-batches wait for one")
    assert View.of(several.record()).standing.retry_in_s == 7.6
    others = seen(stood(3, slots=RUNNING, running=2, **delayed), 2)
    assert now_text(others).startswith("mini-batch 5 runs for 30 s")


def test_obstacles_of_the_cluster_stand_behind_the_reason() -> None:
    """They explain it, and are left out first in a narrow terminal."""
    look = stood(3, slots=STRAGGLER, quiet_s=50)._replace(obstacles=("1 of 4 slots waits",))
    view = seen(look, 3)
    assert now_text(view).endswith("2 tries left, 1 of 4 slots waits")
    assert "waits" not in now_text(view, 80)
    alone = seen(stood(3)._replace(obstacles=("1 of 4 slots waits",)), 3)
    assert now_text(alone, 80) == "1 of 4 slots waits"


def test_a_plan_with_fewer_mini_batches_than_slots_is_said() -> None:
    """The other processes have no work, which nobody sees in a table of less than 1 MB."""
    look = stood(0, slots=STRAGGLER, quiet_s=50)
    view = seen(look, 12)
    assert now_text(view).endswith(
        "2 tries left, 10 mini-batches for 12 slots (see mini_batch_size)"
    )
    assert "for 10 slots" not in now_text(seen(look, 10))


def test_what_the_driver_does_in_the_end_is_said() -> None:
    """To upload takes an hour where the output is large; nothing remains to be estimated."""
    look = stood(10)._replace(doing="uploading to s3://b/out.csv: 5 of 9 MB")
    text = progress_text(seen(look, 2))
    assert text == "10/10 mini-batches, 1 s, 10/s, uploading to s3://b/out.csv: 5 of 9 MB"


def test_tries_are_counted() -> None:
    """An attempt that did not count as a try leaves as many as before."""
    watch, bad = JobWatch(), Failure("ValueError", "bad")
    once = attempt(17, bad)
    for event in (job_started(), SlotsChanged(1, 3), once, once._replace(charged=False)):  # type: ignore[union-attr]
        watch.tell(event)
    watch.tell(stood(3, slots=STRAGGLER))
    view = watch.view()
    assert view is not None
    assert slot_text(view.now[-1]).endswith("timeout in 10 s, 1 try left")
    watch.tell(once)
    watch.tell(stood(3, slots=STRAGGLER))
    view = watch.view()
    assert view is not None
    assert slot_text(view.now[-1]).endswith("timeout in 10 s, last try")


def test_slots_are_counted_by_phase() -> None:
    """They stand where nothing else is to be said."""
    view = seen(stood(3, slots=(*LOADING, *RUNNING)), 4)
    assert at_work_text(view) == "4 processes: 2 running, 1 loading, 1 in init()"


def test_speed_leaves_out_what_comes_before_the_work() -> None:
    """A minute of init() says nothing about how long the rest takes."""
    meter = RateMeter()
    for elapsed_s in (1, 30, 60):
        meter.see(stood(0, elapsed_s=elapsed_s, slots=INIT))
    meter.see(stood(0, elapsed_s=61, slots=RUNNING))
    assert meter.per_s is None
    meter.see(stood(4, elapsed_s=62, slots=RUNNING))
    assert meter.per_s == 2.0


def test_speed_counts_only_what_this_run_has_done() -> None:
    """A resume finds most of it done, in no time."""
    meter = RateMeter()
    meter.see(stood(6, elapsed_s=0, recovered=6))
    assert meter.per_s is None
    meter.see(stood(8, elapsed_s=2, recovered=6))
    assert meter.per_s == 1.0


@pytest.mark.parametrize("looks", [{6: 0.0, 8: 2.0}, {8: 2.0}])
def test_speed_leaves_out_what_earlier_runs_have_given_up(looks: dict[int, float]) -> None:
    """With resume="extend", it is not tried again; short jobs are over at the first look."""
    watch = JobWatch()
    watch.tell(job_started(resumed=True))
    for done, elapsed_s in looks.items():
        watch.tell(stood(done, failed=3, total=20, elapsed_s=elapsed_s, recovered=6))
        view = watch.view()
        assert view is not None
        assert view.per_s == (None if done == 6 else 1.0)


@pytest.mark.parametrize(
    ("view", "text"),
    [
        (View(standing(0), 1), "0/10 mini-batches, 1 s"),
        (
            View(standing(1234, 10000), 125, per_s=12.34, left=TimeLeft(60, 95)),
            "1,234/10,000 mini-batches, 1–1.5 min left, 2 min 5 s, 12/s",
        ),
        (
            View(
                *(standing(4, failed=1, recovered=2), 1),
                per_s=0.05,
                left=TimeLeft(45, 100),
                retried=3,
            ),
            (
                "5/10 mini-batches, 1 failed, 3 retried, 2 done in an earlier run, "
                "45 s–1.5 min left, 1 s, 3.0/min"
            ),
        ),
        (View(standing(1, **UNKNOWN), 1, per_s=2.5), "1 mini-batch, 1 s, 2.5/s"),
        (View(standing(4, **UNKNOWN), 1, per_s=2.5), "4 mini-batches, 1 s, 2.5/s"),
        (View(standing(4, **UNKNOWN), 1, per_s=0.0005), "4 mini-batches, 1 s, 1.8/h"),
        (View(standing(10), 1, per_s=2.0, ended=True), "10/10 mini-batches, 1 s, 2.0/s"),
    ],
)
def test_the_counts(view: View, text: str) -> None:
    """All that is known, and nothing that is not."""
    assert counts_text(view) == text


LONG = seen(stood(4, 1000, failed=1, recovered=2, slots=STRAGGLER, quiet_s=50, elapsed_s=60), 3)
LONG = LONG._replace(per_s=2.0, left=TimeLeft(100, 200), retried=3)


@given(width=st.integers(1, 200))
def test_the_lines_are_never_wider_than_there_is_room(width: int) -> None:
    """They would wrap, and could not be drawn again."""
    assert len(counts_text(LONG, width)) <= width
    assert len(now_text(LONG, width)) <= width


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (72, "    5/1,000 mini-batches, 1 failed, 3 retried, 1.5–3 min left, 1 min 0 s"),
        (50, "    5/1,000 mini-batches, 1 failed, 1.5–3 min left"),
        (40, "    5/1,000 mini-batches, 1 failed"),
        (12, "    5/1,000…"),
    ],
)
def test_what_matters_least_is_left_out_first(width: int, text: str) -> None:
    """How far, what has failed and how long still stay longest; the count keeps its room."""
    assert counts_text(LONG, width) == text


def test_what_runs_longest_is_named_in_80_columns() -> None:
    """The tries are left out first."""
    text = "mini-batch 17 runs for 50 s on node 0 process003, timeout in 10 s"
    assert now_text(LONG, 79) == f"{text}, 2 tries left"
    assert now_text(LONG, 70) == text


@pytest.mark.parametrize(
    ("state", "share"),
    [
        (standing(0, 0), None),
        (standing(3, failed=2), 0.5),
        (standing(10), 1.0),
        (standing(3, **UNKNOWN), None),
        (standing(3, plan_complete=False, expected=12), 0.25),
    ],
)
def test_the_share_that_is_settled(state: Progress, share: float | None) -> None:
    """None while nobody knows how many there will be."""
    assert fraction_done(View(state)) == share


@pytest.mark.parametrize(
    ("low_s", "high_s", "text"),
    [
        (0.0, 0.0, "1 s"),
        (0.0, 4.2, "1–4 s"),
        (48, 127, "50 s–2 min"),
        (600, 610, "10 min"),
        (5000, 9000, "1.5–2.5 h"),
        (60_000, 200_000, "18 h–2 d"),
        (300_000, 400_000, "3–5 d"),
    ],
)
def test_a_range_of_time_is_rough_and_never_0(low_s: float, high_s: float, text: str) -> None:
    """More digits would pretend to know."""
    assert rough_range(low_s, high_s) == text


def test_the_view_of_an_ended_job_has_only_counts() -> None:
    """Not what it was waiting for."""
    watch = JobWatch()
    for event in (stood(3, slots=STRAGGLER, quiet_s=50), job_ended()):
        watch.tell(event)
    view = watch.view()
    assert view is not None
    assert progress_text(view).startswith("10/10 mini-batches, 12 s")


@given(done=st.integers(0, 9), quiet_s=st.floats(0, 99))
def test_another_process_sees_the_same(done: int, quiet_s: float) -> None:
    """What is written for it holds all that is shown."""
    view = seen(stood(done, slots=STRAGGLER, quiet_s=quiet_s), 3)._replace(left=TimeLeft(1.5, 20))
    assert progress_text(View.of(view.record())) == progress_text(view)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (3599.6, "1 h 0 min"),
        (7800, "2 h 10 min"),
        (200_000, "2 d 7 h"),
    ],
)
def test_a_duration_has_two_units(seconds: float, text: str) -> None:
    """The largest, without zeros before them."""
    assert duration(seconds) == text


def test_a_number_has_three_digits_and_no_exponent_where_it_is_large() -> None:
    """All before the point are shown: a report has seconds and rows per second."""
    shown = [rounded(value) for value in (0.012345, 1.0, 12.345, 99.97, 123.4, 12_345.6, 2e6)]
    assert shown == ["0.0123", "1", "12.3", "100", "123", "12,346", "2,000,000"]


def test_a_count_has_its_noun() -> None:
    """In the plural where it is one."""
    words = [
        counted(1, "node"),
        counted(1200, "file"),
        counted(2, "mini-batch"),
        counted(0, "process"),
    ]
    assert words == ["1 node", "1,200 files", "2 mini-batches", "0 processes"]
