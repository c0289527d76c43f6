"""What progress says: how far, how fast, how long, and why nothing moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskprs.core.events import ProgressReported
from daskprs.report.humanize import counted, duration
from daskprs.report.progress_text import (
    Pace,
    RateMeter,
    View,
    fraction_done,
    progress_text,
    why_waiting,
)
from tests.support.job_events import slot, standing, stood

if TYPE_CHECKING:
    from daskprs.core.events import SlotState

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


@pytest.mark.parametrize(
    ("done", "quiet_s", "slots", "offered", "why"),
    [
        (3, 4.9, RUNNING, 2, ""),
        (0, 0.9, STARTING, 2, ""),
        (0, 3.0, (), 0, "waiting for workers for 3 s"),
        (3, 90.0, INIT, 0, "waiting for workers for 1 min 30 s"),
        (0, 3.0, (), 4, "agents starting for 3 s"),
        (0, 3.0, STARTING, 2, "agents starting for 3 s on 2 of 2 processes"),
        (0, 41.0, INIT, 4, "init() running for 41 s on 4 of 4 processes"),
        (3, 50.0, STRAGGLER, 3, "run() running for 50 s on mini-batch 17 in process003"),
        (3, 30.0, RUNNING, 2, "run() running for 30 s on mini-batch 5 in process001 and on 1 more"),
        (3, 12.0, LOADING, 2, "loading for 12 s on mini-batch 3 in process000"),
        (3, 6.0, (slot("shutdown", 4), slot("idle", 9)), 2, "shutdown() running for 4 s on 1 of 2"),
        (3, 6.0, (slot("idle", 6),), 1, "agents idle for 6 s on 1 of 1 process"),
        (10, 0.0, (), 2, "stopping processes"),
    ],
)
def test_why_nothing_moves(
    done: int, quiet_s: float, slots: tuple[SlotState, ...], offered: int, why: str
) -> None:
    """What the slots are doing, or that there is none; nothing while the job moves."""
    said = why_waiting(stood(done, slots=slots, quiet_s=quiet_s), offered)
    assert said.startswith(why)
    assert bool(said) == bool(why)


def test_pace_leaves_out_what_comes_before_the_work() -> None:
    """A minute of init() says nothing about how long the rest takes."""
    maker = RateMeter()
    for elapsed_s in (1, 30, 60):
        assert maker.pace(stood(0, elapsed_s=elapsed_s, slots=INIT)) == Pace()
    assert maker.pace(stood(0, elapsed_s=61, slots=RUNNING)) == Pace()
    assert maker.pace(stood(4, elapsed_s=62, slots=RUNNING)) == Pace(per_s=2.0, left_s=3.0)


def test_pace_counts_only_what_this_run_has_done() -> None:
    """A resume finds most of it done, in no time."""
    maker = RateMeter()
    assert maker.pace(stood(6, elapsed_s=0, recovered=6)) == Pace()
    assert maker.pace(stood(8, elapsed_s=2, recovered=6)) == Pace(per_s=1.0, left_s=2.0)


def test_nobody_says_how_long_a_plan_of_unknown_length_takes() -> None:
    """But how fast it goes."""
    assert RateMeter().pace(stood(4, elapsed_s=2, **UNKNOWN)) == Pace(per_s=2.0)


@pytest.mark.parametrize(
    ("view", "text"),
    [
        (View(stood(0)), "0/10 mini-batches, 1 s"),
        (
            View(stood(1234, 10000, elapsed_s=125), Pace(12.34, 65)),
            "1,234/10,000 mini-batches, 12/s, 2 min 5 s, 1 min 5 s left",
        ),
        (
            View(stood(4, failed=1, recovered=2), Pace(0.05, 100), retried=3),
            (
                "5/10 mini-batches, 3.0/min, 1 failed, 3 retried, 2 done in an earlier run, 1 s, "
                "1 min 40 s left"
            ),
        ),
        (View(stood(4, **UNKNOWN), Pace(2.5)), "4 mini-batches, 2.5/s, 1 s"),
        (
            View(stood(0, slots=INIT, quiet_s=41, elapsed_s=42), slots=4),
            "0/10 mini-batches, 42 s, init() running for 41 s on 4 of 4 processes",
        ),
        (View(stood(10), Pace(2.0, 0.0), ended=True), "10/10 mini-batches, 2.0/s, 1 s"),
    ],
)
def test_the_line(view: View, text: str) -> None:
    """All that is known, and nothing that is not."""
    assert progress_text(view) == text


LONG = View(
    stood(4, 1000, failed=1, recovered=2, slots=STRAGGLER, quiet_s=50, elapsed_s=60),
    Pace(2.0, 100),
    retried=3,
    slots=3,
)


@given(width=st.integers(1, 200))
def test_the_line_is_never_wider_than_there_is_room(width: int) -> None:
    """It would wrap, and could not be drawn again."""
    assert len(progress_text(LONG, width)) <= width


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (
            100,
            "5/1,000 mini-batches, 1 failed, run() running for 50 s on mini-batch 17 in process003",
        ),
        (80, "5/1,000 mini-batches, run() running for 50 s on mini-batch 17 in process003"),
        (40, "5/1,000 mini-batches"),
        (12, "5/1,000 min…"),
    ],
)
def test_what_matters_least_is_left_out_first(width: int, text: str) -> None:
    """How far, why it waits and what has failed stay longest."""
    said = progress_text(LONG, width)
    if width == 100:
        assert set(text.split(", ")) <= set(said.split(", "))
    else:
        assert said == text


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
def test_the_share_that_is_settled(state: object, share: float | None) -> None:
    """None while nobody knows how many there will be."""
    assert fraction_done(View(ProgressReported(state, (), 1.0, 0.0))) == share  # type: ignore[arg-type]


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


def test_a_count_has_its_noun() -> None:
    """In the plural where it is one."""
    words = [
        counted(1, "node"),
        counted(1200, "file"),
        counted(2, "mini-batch"),
        counted(0, "process"),
    ]
    assert words == ["1 node", "1,200 files", "2 mini-batches", "0 processes"]
