"""The time that a job still needs, as a range: from earlier attempts, and from what runs longest.

The middle of the range is the end if each process takes a mini-batch of the mean duration whenever
it is free. The range is as wide as the spread of the durations makes it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from heapq import heapify, heapreplace
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, NamedTuple

from daskprs._agent.supervision.supervisor import deadlines_s
from daskprs._core.columnar import ColumnBatch
from daskprs._core.events import AgentChanged, AttemptFailed, JobStarted, MiniBatchesDone
from daskprs._core.lease import AgentExited, AgentReady
from daskprs._core.limits import Limits
from daskprs._core.outcomes import TIMEOUTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daskprs._core.events import Event, Place, ProgressReported, SlotState
    from daskprs._core.mini_batch import MiniBatch
    from daskprs._core.outcomes import Outcome

AT_WORK = frozenset({"loading", "running"})
NOT_UP = frozenset({"starting", "init"})
KEPT = 512
"""Maximum number of durations from which the estimate is made."""
MOST_SHARED = 10_000
"""Maximum number of mini-batches that are given to slots one by one; what comes before counts by
its sum."""
LOW, MIDDLE, HIGH = 0.15, 0.5, 0.85
"""The shares of cases in which a running mini-batch ends earlier: the range holds 70 %."""
DEVIATIONS = 1.04
"""Standard deviations on each side of the mean that hold 70 % of a normal distribution."""
SPREAD = 0.4
"""Relative error of an estimate from a single duration; it falls with the root of their number."""
RELATED = 0.3
"""Smallest correlation of sizes and durations for which sizes count."""
ALIKE = 0.05
"""Relative deviation up to which sizes are alike: another size is then assumed to count."""


class TimeLeft(NamedTuple):
    """The seconds that the job still needs: a range that holds the truth in 7 of 10 cases."""

    low_s: float
    high_s: float

    @property
    def middle_s(self) -> float:
        """The middle of the range."""
        return (self.low_s + self.high_s) / 2


class RemainingTime:
    """Estimates the seconds until every mini-batch is settled; fed with the events of a job.

    The first mini-batch of each process counts apart, since many scripts load something in it.
    Where the sizes of mini-batches explain their durations, those that are left count by their
    size.
    """

    def __init__(self) -> None:
        self._deadlines_s = deadlines_s(Limits())
        self._max_try = Limits().run_max_try
        self._calls = 1
        """Number of mini-batches that a process works on at a time."""
        self._sizes: dict[int, int] | None = None
        """Sizes of the mini-batches that are not settled, where the plan knows them."""
        self._attempts = self._settled = 0
        self._durations = _EvenSample()
        self._first_durations = _EvenSample()
        self._init_durations = _EvenSample()
        self._timed_out_s = 0.0
        """Seconds of attempts that timed out."""
        self._deaths = 0
        self._timed_out: set[int] = set()
        """Mini-batches that have timed out and are not settled."""
        self._span_s = self._work_s = 0.0
        """Seconds of all processes from their first mini-batch to the end of the latest, and those
        that mini-batches took of them."""
        self._ends: dict[tuple[int, str], float] = {}
        """When each process finished its latest mini-batch, on the clock of its node."""
        self._tries: dict[int, int] = {}
        """Number of charged attempts at mini-batches that failed and are not settled."""

    def tell(self, event: Event) -> None:
        """Learn from an event."""
        match event:
            case JobStarted(limits=limits, sizes=sizes):
                self._deadlines_s, self._max_try = deadlines_s(limits), limits.run_max_try
                self._calls = limits.calls
                self._sizes = None if sizes is None else dict(sizes)
            case MiniBatchesDone(place, mini_batches, outcomes):
                self._settle(mini_batches)
                self._learn(place, mini_batches, outcomes)
            case AttemptFailed(mini_batch=mini_batch, again=True):
                self._settle([mini_batch])
            case AttemptFailed(place, mini_batch, outcome, final, charged):
                self._tries[mini_batch.index] = self._tries.get(mini_batch.index, 0) + charged
                if final:
                    self._settle([mini_batch])
                if outcome.status in TIMEOUTS:
                    self._timed_out.add(mini_batch.index)
                    self._timed_out_s += outcome.elapsed_s
                elif outcome.elapsed_s:
                    self._ends.setdefault(place[:2], outcome.started)  # not what a first one takes
                    self._learn(place, [mini_batch], ColumnBatch([outcome]))
            case AgentChanged(_, AgentReady(elapsed_s=elapsed_s)):
                self._init_durations.add([elapsed_s])
            case AgentChanged(_, AgentExited(expected=False)):
                self._deaths += 1

    def tries_left(self, index: int) -> int:
        """Return how often a mini-batch is tried again if its present attempt fails."""
        return max(0, self._max_try - self._tries.get(index, 0) - 1)

    def timeout_s(self, phase: str) -> float:
        """Return the timeout of a phase in seconds; infinite for one without."""
        return self._deadlines_s.get(phase, math.inf)

    def left(self, stood: ProgressReported, slots: int) -> TimeLeft | None:
        """Return the time left on a cluster with a number of slots; None while it is unknown."""
        standing = stood.standing
        if standing.planned is None:
            return None
        unsettled = max(0, standing.planned - standing.settled)
        if not unsettled:
            return TimeLeft(0.0, 0.0)
        kept = self._durations.kept or self._first_durations.kept
        if not kept or not (slots or stood.slots):
            return None
        known = _Durations(kept, self._overhead_s, self.timeout_s("running"))
        at_work = [slot for slot in stood.slots if slot.phase in AT_WORK]
        known.count(at_work)
        fresh_s = self._fresh_s(unsettled, at_work, known)
        middle_s = self._shared_end_s(stood.slots, slots, fresh_s, known)
        delay_s = standing.retry_in_s or 0.0
        if not standing.running:
            middle_s += delay_s
        at_a_time = self._calls * max(slots, len(stood.slots))
        deviation_s = known.deviation_s(fresh_s) / at_a_time
        ends_s = [self._last_end_s(at_work, known, share) for share in (LOW, HIGH)]
        low_s = max(delay_s, ends_s[0], middle_s - DEVIATIONS * deviation_s)
        return TimeLeft(low_s, max(low_s, ends_s[1], middle_s + DEVIATIONS * deviation_s))

    # ---- what is learnt ----

    def _settle(self, mini_batches: Sequence[MiniBatch]) -> None:
        self._settled += len(mini_batches)
        for one in mini_batches if self._tries else ():
            self._tries.pop(one.index, None)
            self._timed_out.discard(one.index)
        if self._sizes:
            for one in mini_batches:
                self._sizes.pop(one.index, None)

    def _learn(
        self, place: Place, mini_batches: Sequence[MiniBatch], outcomes: ColumnBatch[Outcome]
    ) -> None:
        elapsed, started = outcomes.column("elapsed_s"), outcomes.column("started")
        self._attempts += len(elapsed)
        before = self._ends.get(place[:2])
        end = max(before or 0.0, started[-1] + elapsed[-1])  # failures come after successes
        self._ends[place[:2]] = end
        self._span_s += end - (before or started[0])
        self._work_s += sum(elapsed)
        if before is None:
            self._first_durations.add(elapsed[:1], mini_batches[:1])
            elapsed, mini_batches = elapsed[1:], mini_batches[1:]
        self._durations.add(elapsed, mini_batches)

    @property
    def _overhead_s(self) -> float:
        """Seconds for each attempt beside its duration: between two, and for a new process."""
        init_s = self._init_durations.mean_s if self._deaths and self._init_durations.kept else 0.0
        gap_s = max(0.0, self._span_s - self._work_s)
        # The first one that hangs is taken for an exception: the next may be far away.
        hung_s = max(0.0, self._timed_out_s - self.timeout_s("running"))
        return (gap_s + hung_s + self._deaths * init_s) / max(1, self._attempts)

    def _fresh_s(self, unsettled: int, at_work: list[SlotState], known: _Durations) -> list[float]:
        """Return the expected seconds of each mini-batch that nothing has begun."""
        again = max(1.0, self._attempts / max(1, self._settled))
        if self._sizes is None:
            return [again * known.expected_s(None)] * max(0, unsettled - len(at_work))
        begun = {slot.index for slot in at_work}
        left = (size for index, size in self._sizes.items() if index not in begun)
        return [again * known.expected_s(size) for size in left]

    # ---- the end ----

    def _shared_end_s(
        self, states: Sequence[SlotState], slots: int, fresh_s: list[float], known: _Durations
    ) -> float:
        """Return the end if each slot takes the next mini-batch whenever it is free.

        Of several calls of a slot, the one that has run longest is known; the others count as new.
        """
        free = [self._free_in_s(slot, known, MIDDLE) for slot in states]
        up = [self._up_in_s(0.0)] * (slots - len(states))
        at_work = [at for at, slot in zip(free, states, strict=True) if slot.phase in AT_WORK]
        others = [
            0.0 if slot.phase in AT_WORK else at_s for at_s, slot in zip(free, states, strict=True)
        ]
        free += up + (self._calls - 1) * (others + up)
        ahead, tail = fresh_s[:-MOST_SHARED], fresh_s[-MOST_SHARED:]
        ahead_s = known.in_all_s(ahead) / len(free)
        end_s = max(at_work, default=0.0)
        free = [ahead_s + at_s for at_s in free]
        heapify(free)
        for expected_s in tail:
            at_s = free[0] + known.in_all_s([expected_s])
            heapreplace(free, at_s)
            end_s = max(end_s, at_s)
        return end_s

    def _last_end_s(self, at_work: list[SlotState], known: _Durations, share: float) -> float:
        """Return when all that runs is done, in this share of all cases."""
        of_each = share ** (1 / max(1, len(at_work)))
        return max((self._free_in_s(slot, known, of_each) for slot in at_work), default=0.0)

    def _free_in_s(self, slot: SlotState, known: _Durations, share: float) -> float:
        """Return the seconds until a slot is free, in this share of all cases."""
        if slot.phase in NOT_UP:
            return self._up_in_s(slot.since_s)
        if slot.phase not in AT_WORK:
            return 0.0
        timeout_s = self.timeout_s(slot.phase)
        in_all_s = known.longer_s(slot, share)
        if in_all_s <= timeout_s:
            return in_all_s - slot.since_s
        left_s = max(0.0, timeout_s - slot.since_s)
        tries = 0 if slot.index is None else self.tries_left(slot.index)
        if share > MIDDLE and slot.index in self._timed_out:
            return left_s + tries * timeout_s  # it may hang each time
        return left_s + (min(timeout_s, known.expected_s(slot.size)) if tries else 0.0)

    def _up_in_s(self, since_s: float) -> float:
        """Return the seconds until a process that starts has finished its first mini-batch's load.

        The first mini-batch of a process takes as much longer as those before it did.
        """
        longer = [s for s, _ in self._init_durations.kept if s > since_s]
        up_in_s = fmean(longer) - since_s if longer else since_s
        extra_s = 0.0
        if self._durations.kept and self._first_durations.kept:
            extra_s = self._first_durations.mean_s - self._durations.mean_s
        return min(up_in_s, self.timeout_s("init")) + max(0.0, extra_s)


class _Durations:
    """The durations of attempts in seconds, and their relation to sizes where these are known.

    Each further attempt takes `overhead_s` more, and has a timeout of `limit_s`.
    """

    def __init__(
        self, known: list[tuple[float, float | None]], overhead_s: float, limit_s: float
    ) -> None:
        self._overhead_s, self._limit_s = overhead_s, limit_s
        self._mean_s = max(1e-6, fmean(seconds for seconds, _ in known))
        self._least_s = max(1e-6, min(seconds for seconds, _ in known))
        self._base_s, self._by_size = _line_through(known)
        self._ratios = sorted(seconds / self.expected_s(size) for seconds, size in known)
        self._mean, self._spread = 1.0, 0.0
        """Mean and standard deviation of the ratios, with those of mini-batches that run."""

    def expected_s(self, size: float | None) -> float:
        """Return the seconds that earlier attempts let expect of a mini-batch."""
        if size is None:
            return self._mean_s
        return max(self._least_s, self._base_s + self._by_size * size)

    def count(self, running: list[SlotState]) -> None:
        """Count what runs like what is done.

        Else the long ones would be missing, which are the last to be known.
        """
        ratios = [
            min(self.longer_s(slot, MIDDLE), self._limit_s) / self.expected_s(slot.size)
            for slot in running
        ]
        self._mean, self._spread = fmean(ratios + self._ratios), pstdev(ratios + self._ratios)

    def in_all_s(self, expected_s: list[float]) -> float:
        """Return the seconds of mini-batches that nothing has begun."""
        return self._mean * sum(expected_s) + self._overhead_s * len(expected_s)

    def deviation_s(self, expected_s: list[float]) -> float:
        """Return the standard deviation of their seconds, with the error of the mean."""
        of_each = self._spread**2 * sum(seconds**2 for seconds in expected_s)
        of_mean = (SPREAD**2 + self._spread**2) / len(self._ratios) * sum(expected_s) ** 2
        return math.sqrt(of_each + of_mean)

    def longer_s(self, slot: SlotState, share: float) -> float:
        """Return how long a running mini-batch takes in all, in this share of all cases.

        It takes as long as one of those that ran longer, or up to twice as long as it has run.
        """
        expected_s = self.expected_s(slot.size)
        age = slot.since_s / expected_s
        longer = self._ratios[bisect_right(self._ratios, age) :]
        if longer:
            return longer[int(share * len(longer))] * expected_s
        return slot.since_s * (1.0 + share)


def _line_through(known: list[tuple[float, float | None]]) -> tuple[float, float]:
    """Return the base and the slope of durations over sizes; slope 0 where sizes say nothing."""
    mean_s = fmean(seconds for seconds, _ in known)
    sizes = [size for _, size in known if size is not None]
    if len(sizes) < len(known) or not any(sizes):
        return mean_s, 0.0
    mean_size = fmean(sizes)
    spread = sum((size - mean_size) ** 2 for size in sizes)
    if spread <= len(sizes) * (ALIKE * mean_size) ** 2:
        return 0.0, mean_s / mean_size
    spread_s = sum((seconds - mean_s) ** 2 for seconds, _ in known)
    together = sum((s - mean_s) * ((size or 0) - mean_size) for s, size in known)
    if together <= RELATED * math.sqrt(spread * spread_s):
        return mean_s, 0.0
    return mean_s - together / spread * mean_size, together / spread


class _EvenSample:
    """Keeps every n-th of the durations of a job, evenly over its whole time."""

    def __init__(self) -> None:
        self.kept: list[tuple[float, float | None]] = []
        """Seconds, and the size of the mini-batch where that is known."""
        self._stride = 1
        self._next = 0

    @property
    def mean_s(self) -> float:
        """The mean of the durations."""
        return fmean(seconds for seconds, _ in self.kept)

    def add(self, seconds: Sequence[float], mini_batches: Sequence[MiniBatch] = ()) -> None:
        """Add durations, with the mini-batches that had them."""
        self.kept += [
            (seconds[at], mini_batches[at].size if mini_batches else None)
            for at in range(self._next, len(seconds), self._stride)
        ]
        self._next = (self._next - len(seconds)) % self._stride
        while len(self.kept) > KEPT:
            del self.kept[::2]
            self._stride *= 2
