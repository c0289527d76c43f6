"""The time left: estimated on the events of real jobs, and in the cases that decide it."""

from __future__ import annotations

import math
from statistics import median
from typing import NamedTuple

import pytest

from daskprs._core.columnar import ColumnBatch
from daskprs._core.events import (
    AgentChanged,
    AttemptFailed,
    MiniBatchesDone,
    ProgressReported,
    SlotsChanged,
)
from daskprs._core.lease import AgentReady
from daskprs._core.limits import Limits
from daskprs._core.mini_batch import MiniBatch
from daskprs._core.outcomes import Failure, Outcome, Status
from daskprs._report.remaining_time import KEPT, RemainingTime, TimeLeft
from tests.report.trace import TRACES, read
from tests.support.job_events import HERE, attempt, job_started, slot, stood

NAMES = sorted(path.stem for path in TRACES.glob("*.jsonl"))


class Estimate(NamedTuple):
    """An estimate, and what was true."""

    left: TimeLeft
    true_s: float

    @property
    def error(self) -> float:
        """The relative error of the middle; within the last second nobody minds."""
        return abs(self.left.middle_s - self.true_s) / max(1.0, self.true_s)

    @property
    def holds(self) -> bool:
        """Whether the range holds the truth, to a second."""
        return self.left.low_s - 1 <= self.true_s <= self.left.high_s + 1


def estimates(name: str) -> list[Estimate]:
    """Return the estimates of a trace after a fifth of its items."""
    remaining, slots = RemainingTime(), 0
    found: list[tuple[TimeLeft, float]] = []
    end_s = math.inf
    for event in read(name):
        remaining.tell(event)
        if isinstance(event, SlotsChanged):
            slots = event.slots
        if not isinstance(event, ProgressReported):
            continue
        standing = event.standing
        assert standing.planned is not None
        if standing.settled == standing.planned:
            end_s = min(end_s, event.elapsed_s)
        elif standing.settled >= standing.planned / 5:
            left = remaining.left(event, slots)
            assert left is not None
            found.append((left, event.elapsed_s))
    return [Estimate(left, end_s - at_s) for left, at_s in found]


def test_there_are_traces_of_what_happens_to_jobs() -> None:
    """Skew, hangs, slow starts, retries, few mini-batches for each process."""
    expected = ["ascending", "even", "few", "hangs", "retries", "skew", "slow_start", "straggler"]
    assert expected == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_middle_of_the_range_is_within_a_quarter_of_the_truth(name: str) -> None:
    """In the median, after a fifth of the items."""
    made = estimates(name)
    assert len(made) > 10
    assert median(one.error for one in made) <= 0.25


def test_the_range_mostly_holds_the_truth() -> None:
    """Over all traces; it is to hold it in 70 % of all cases."""
    made = [one for name in NAMES for one in estimates(name)]
    assert sum(one.holds for one in made) >= 0.7 * len(made)


def done(seconds: list[float], first: int = 0, process: int = 0) -> MiniBatchesDone:
    """Return the end of mini-batches that took these seconds, one after the other."""
    mini_batches, outcomes, started = [], [], 1000.0
    for index, elapsed_s in enumerate(seconds, first):
        mini_batches.append(MiniBatch(index, None, ""))
        times = started, elapsed_s, elapsed_s, 0.0
        outcomes.append(Outcome(index, 1, Status.RUN_DONE, 1, 1, *times))
        started += elapsed_s
    place = HERE._replace(process=f"process{process:03d}")
    return MiniBatchesDone(place, mini_batches, ColumnBatch(outcomes))


def told(*events: object) -> RemainingTime:
    """Return the estimate that knows these events."""
    remaining = RemainingTime()
    for event in events:
        remaining.tell(event)  # type: ignore[arg-type]
    return remaining


def test_nothing_is_known_before_the_first_mini_batch_is_done() -> None:
    """Nor where the plan has an unknown length, or there is no slot."""
    assert told(job_started()).left(stood(0), 4) is None
    known = told(job_started(), done([1.0] * 3))
    assert known.left(stood(3, plan_complete=False, expected=None), 4) is None
    assert known.left(stood(3), 0) is None
    assert known.left(stood(3), 4) is not None


def test_the_last_mini_batch_counts_by_what_others_took() -> None:
    """Free slots do not help it."""
    known = told(job_started(), done([10.0] * 9))
    left = known.left(stood(9, slots=(slot("running", 4.0, 9), slot("idle"))), 8)
    assert left is not None
    assert 4 < left.middle_s < 8


@pytest.mark.parametrize("status", [Status.RUN_EXCEPTION, Status.RUN_TIMEOUT])
def test_an_attempt_that_is_told_again_counts_once(status: Status) -> None:
    """Its mini-batch is given up only after the search for its bad rows."""
    failed = attempt(9, Failure("ValueError", "no"), status=status)
    assert isinstance(failed, AttemptFailed)
    begun, looked = job_started(limits=Limits(run_timeout_s=0.25)), stood(9, failed=1, total=20)
    good, final = done([1.0] * 9), failed._replace(final=True)
    again = told(begun, good, failed, final._replace(again=True))
    once = told(begun, good, final)
    assert again.left(looked, 2) == once.left(looked, 2)


@pytest.mark.parametrize("phase", ["running", "idle", "init"])
def test_a_process_does_several_calls_at_a_time(phase: str) -> None:
    """Twelve of them make the rest twelve times as short."""
    lefts = [
        told(job_started(limits=Limits(calls=calls)), done([1.0] * 100)).left(
            stood(100, 1300, slots=(slot(phase, 0.5, 100),)), 2
        )
        for calls in (1, 12)
    ]
    one, twelve = (left.middle_s for left in lefts if left is not None)
    assert one == pytest.approx(600, rel=0.01)
    assert twelve == pytest.approx(50, rel=0.02)


def test_what_runs_longer_than_all_others_may_run_as_long_again() -> None:
    """It ends at its timeout, and then is tried again."""
    known = told(job_started(), done([1.0] * 9))
    lefts = [
        known.left(stood(9, slots=(slot("running", since_s, 9),)), 1) for since_s in (5, 20, 50)
    ]
    assert all(left is not None and left.high_s >= left.low_s > 0 for left in lefts)
    after_5, after_20, after_50 = (left for left in lefts if left is not None)
    assert after_5.low_s < after_20.low_s
    assert 10 < after_50.high_s < 10 + 60 + 60


def test_the_last_try_ends_at_its_timeout() -> None:
    """Nothing comes after it."""
    hung = Failure("TimeoutError", "slow")
    failed = attempt(9, hung, status=Status.RUN_TIMEOUT)
    known = told(job_started(), done([1.0] * 9), failed, failed)
    assert known.tries_left(9) == 0
    left = known.left(stood(9, slots=(slot("running", 55, 9),)), 1)
    assert left is not None
    assert left.high_s <= 5


def test_what_a_process_does_first_is_no_measure_of_the_rest() -> None:
    """Many scripts load a model in it; a process that is still to come does so, too."""
    known = told(job_started(), done([30.0, *[1.0] * 4]), done([30.0, *[1.0] * 4], 5, 1))
    left = known.left(stood(10, 30, slots=(slot("running", 0.1, 10), slot("running", 0.1, 11))), 2)
    assert left is not None
    assert 8 < left.middle_s < 12


def test_processes_that_start_take_their_share_later() -> None:
    """As much later as others needed for init()."""
    ready = AgentChanged(HERE, AgentReady("process000", 20.0))
    known = told(job_started(), ready, done([1.0] * 10))
    slots = (slot("running", 0.5, 10), slot("init", 5.0, process=1))
    left = known.left(stood(10, 50, slots=slots), 2)
    assert left is not None
    assert 24 < left.middle_s < 32


def test_sizes_count_where_they_explain_durations() -> None:
    """The large ones come last here."""
    sizes = dict(enumerate([10] * 8 + [100] * 2))
    events = [job_started(sizes=sizes)]
    small = done([1.0, 1.1, 0.9, 1.0, 1.0, 1.1, 0.9, 1.0])
    sized = [one._replace(size_bytes=10) for one in small.mini_batches]
    known = told(*events, small._replace(mini_batches=sized))
    left = known.left(stood(8), 1)
    assert left is not None
    assert 17 < left.middle_s < 23


def test_a_million_mini_batches_are_learnt_in_little_memory() -> None:
    """Evenly over the whole job."""
    known = told(job_started())
    for first in range(0, 20_000, 100):
        known.tell(done([1.0 if first < 10_000 else 3.0] * 100, first))
    assert len(known._durations.kept) <= KEPT
    left = known.left(stood(20_000, 20_100), 1)
    assert left is not None
    assert 180 < left.middle_s < 220


def test_thousands_of_slots_cost_no_more_than_some() -> None:
    """And the estimate is that of as many."""
    known = told(job_started(), done([10.0] * 400))
    slots = tuple(slot("running", n % 10, n, process=n) for n in range(2000))
    left = known.left(stood(400, 400 + 2000 + 20_000, slots=slots), 2000)
    assert left is not None
    assert 95 < left.middle_s < 125
