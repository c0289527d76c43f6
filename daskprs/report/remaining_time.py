"""The time that a job still needs, as a range: from what mini-batches took, and from what runs.

The rest of the job is simulated some times over. Each process goes on with the mini-batch that it
has, and takes another one whenever it is free. Durations are drawn from those of earlier attempts.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from heapq import heapify, heapreplace
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from daskprs.agent.supervision.supervisor import deadlines_s
from daskprs.core.columnar import ColumnBatch
from daskprs.core.events import AgentChanged, AttemptFailed, JobStarted, MiniBatchesDone
from daskprs.core.lease import AgentExited, AgentReady
from daskprs.core.limits import Limits
from daskprs.core.outcomes import TIMEOUTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daskprs.core.events import Event, Place, ProgressReported, SlotState
    from daskprs.core.mini_batch import MiniBatch
    from daskprs.core.outcomes import Outcome, Status

AT_WORK = frozenset({"loading", "running"})
NOT_UP = frozenset({"starting", "init"})
KEPT = 512
"""Maximum number of durations from which the simulation draws."""
DRAWS = 20
CUT = 3
"""Number of simulations that the range leaves out at each end: it holds 70 % of them."""
MOST_SLOTS = 64
"""Maximum number of simulated processes; more are simulated by this sample of them …"""
TAIL = 8
"""… with this many mini-batches for each of them; what comes before counts by its sum …"""
LARGE = 5
"""… unless a mini-batch takes this many times the mean, as one slot alone has that …"""
MOST_TAILS = 3
"""… but at most this many times more are simulated."""
SPREAD = 0.4
"""Relative error of an estimate from a single duration; it falls with the root of their number."""
RELATED = 0.3
"""Smallest correlation of sizes and durations for which sizes count."""
ALIKE = 0.05
"""Relative deviation up to which sizes are alike: another size is then assumed to count."""
HEAVY = 1.0
"""Exponent of the heaviest tail: what has run for a minute runs for another one in half of all
cases."""
ASSUMED, LOGS = 2, 0.4
"""Durations in the tail that are assumed before any is known, and the sum of their logarithms."""
HUNG, RETRIED = 0.5, 1.5
"""Timeouts assumed before any was seen: a third of those that are tried again time out again."""


class TimeLeft(NamedTuple):
    """The seconds that the job still needs: the range of 70 % of the simulations."""

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
        self._sizes: dict[int, int] | None = None
        """Sizes of the mini-batches that are not settled, where the plan knows them."""
        self._attempts = self._settled = 0
        self._durations = _EvenSample()
        self._first_durations = _EvenSample()
        self._init_durations = _EvenSample()
        self._timed_out_s = 0.0
        """Seconds of attempts that timed out."""
        self._deaths = 0
        self._hung, self._retried = HUNG, RETRIED
        """How many mini-batches that had timed out did so again, and how many were tried again."""
        self._timed_out: set[int] = set()
        """Those that have timed out and are not settled."""
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
                self._sizes = None if sizes is None else dict(sizes)
            case MiniBatchesDone(place, mini_batches, outcomes):
                self._settle(mini_batches)
                self._learn(place, mini_batches, outcomes)
            case AttemptFailed(place, mini_batch, outcome, final, charged):
                self._tries[mini_batch.index] = self._tries.get(mini_batch.index, 0) + charged
                self._hang(mini_batch.index, outcome.status)
                if final:
                    self._settle([mini_batch])
                if outcome.status in TIMEOUTS:
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
        """Return the time left; None while it is unknown.

        Parameters
        ----------
        stood
            The latest progress.
        slots
            Number of slots that the cluster offers.

        """
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
        fresh_s = self._fresh_s(unsettled, at_work, known)
        random = Random(0)  # noqa: S311 - the same draws each time: the range does not flicker
        ends = sorted(self._simulated(stood, slots, fresh_s, known, random) for _ in range(DRAWS))
        return TimeLeft(ends[CUT], ends[-1 - CUT])

    # ---- what is learnt ----

    def _settle(self, mini_batches: Sequence[MiniBatch]) -> None:
        self._settled += len(mini_batches)
        for one in mini_batches if self._tries else ():
            self._tries.pop(one.index, None)
            if one.index in self._timed_out:
                self._retried += 1
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

    def _hang(self, index: int, status: Status) -> None:
        """Learn whether a mini-batch that has timed out does so again."""
        timed_out = status in TIMEOUTS
        if index in self._timed_out:
            self._hung, self._retried = self._hung + timed_out, self._retried + 1
        if timed_out:
            self._timed_out.add(index)

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

    # ---- the simulation ----

    def _simulated(
        self,
        stood: ProgressReported,
        slots: int,
        fresh_s: list[float],
        known: _Durations,
        random: Random,
    ) -> float:
        """Return the seconds that the rest of the job takes in one simulation."""
        states = sorted(stood.slots, key=lambda slot: slot.since_s, reverse=True)
        slots = max(slots, len(states))
        share = max(1, -(-slots // MOST_SLOTS))
        busy = states[::share]
        at_work = [slot for slot in busy if slot.phase in AT_WORK]
        in_all_s = dict(zip(at_work, known.draw(at_work, random), strict=True))
        free = [self._free_in_s(slot, in_all_s.get(slot, 0.0), known, random) for slot in busy]
        free += [self._up_in_s(0.0, random) for _ in range(max(1, slots // share) - len(busy))]
        first = self._first_of_tail(fresh_s, TAIL * slots)
        tail, ahead_s = fresh_s[first:], known.in_all_s(fresh_s[:first]) / slots
        free = [ahead_s + free_in_s for free_in_s in free]
        ends_s = (at for at, slot in zip(free, busy, strict=False) if slot.phase in AT_WORK)
        end_s = max(ends_s, default=0.0)
        heapify(free)
        for expected_s in tail[::share]:
            at_s = free[0] + known.drawn_s(expected_s, random)
            heapreplace(free, at_s)
            end_s = max(end_s, at_s)
        return end_s

    def _first_of_tail(self, fresh_s: list[float], count: int) -> int:
        """Return where the mini-batches begin that are simulated: with the first large one."""
        head = len(fresh_s) - count
        if head <= 0:
            return 0
        large_s = LARGE * sum(fresh_s) / len(fresh_s)
        first = next((at for at, seconds in enumerate(fresh_s) if seconds > large_s), head)
        return min(head, max(first, head - MOST_TAILS * count))

    def _free_in_s(
        self, slot: SlotState, in_all_s: float, known: _Durations, random: Random
    ) -> float:
        """Return the seconds until a slot is free, whose mini-batch takes `in_all_s`."""
        if slot.phase in NOT_UP:
            return self._up_in_s(slot.since_s, random)
        if slot.phase not in AT_WORK:
            return 0.0
        timeout_s = self.timeout_s(slot.phase)
        if in_all_s <= timeout_s:
            return in_all_s - slot.since_s
        left_s = max(0.0, timeout_s - slot.since_s)
        for _ in range(0 if slot.index is None else self.tries_left(slot.index)):
            if random.random() >= self._hung / self._retried:
                return left_s + min(timeout_s, known.drawn_s(known.expected_s(slot.size), random))
            left_s += timeout_s
        return left_s

    def _up_in_s(self, since_s: float, random: Random) -> float:
        """Return the seconds until a process that starts has finished its first mini-batch's load.

        The first mini-batch of a process takes as much longer as those before it did.
        """
        longer = [s for s, _ in self._init_durations.kept if s > since_s]
        up_in_s = random.choice(longer) - since_s if longer else since_s
        extra_s = 0.0
        if self._durations.kept and self._first_durations.kept:
            extra_s = self._first_durations.mean_s - self._durations.mean_s
        return min(up_in_s, self.timeout_s("init")) + max(0.0, extra_s)


class _Durations:
    """The durations of attempts, and their relation to sizes.

    Parameters
    ----------
    known
        Durations in seconds, with sizes where they are known.
    overhead_s
        Seconds to add to each further attempt.
    limit_s
        The timeout of an attempt.

    """

    def __init__(
        self, known: list[tuple[float, float | None]], overhead_s: float, limit_s: float
    ) -> None:
        self._overhead_s, self._limit_s = overhead_s, limit_s
        self._mean_s = max(1e-6, fmean(seconds for seconds, _ in known))
        self._least_s = max(1e-6, min(seconds for seconds, _ in known))
        self._base_s, self._by_size = _line_through(known)
        self._ratios = sorted(seconds / self.expected_s(size) for seconds, size in known)
        self._pool = self._ratios
        """The ratios from which a simulation draws."""
        self._mean_ratio = self._level = 1.0

    def expected_s(self, size: float | None) -> float:
        """Return the seconds that earlier attempts let expect of a mini-batch."""
        if size is None:
            return self._mean_s
        return max(self._least_s, self._base_s + self._by_size * size)

    def draw(self, running: list[SlotState], random: Random) -> list[float]:
        """Return the seconds that running mini-batches take in all, in another simulation.

        They count in it like those that are done: else the long ones would be missing, which are
        the last to be known. The rest may be slower or faster than these few say.
        """
        expected_s = [self.expected_s(slot.size) for slot in running]
        both = list(zip(running, expected_s, strict=True))
        drawn = [self._beyond(slot.since_s / seconds, random) for slot, seconds in both]
        limits = (self._limit_s / seconds for seconds in expected_s)
        self._pool = self._ratios + list(map(min, drawn, limits))
        self._mean_ratio = fmean(self._pool)
        count = len(self._pool)
        error = math.exp(random.gauss(0.0, SPREAD / math.sqrt(count)))
        self._level = error * fmean(random.choices(self._pool, k=count)) / self._mean_ratio
        return [ratio * seconds for ratio, seconds in zip(drawn, expected_s, strict=True)]

    def in_all_s(self, expected_s: list[float]) -> float:
        """Return the seconds of many mini-batches."""
        return self._level * self._mean_ratio * sum(expected_s) + self._overhead_s * len(expected_s)

    def drawn_s(self, expected_s: float, random: Random) -> float:
        """Return the seconds of a mini-batch that nothing has begun."""
        return self._level * expected_s * random.choice(self._pool) + self._overhead_s

    def _beyond(self, age: float, random: Random) -> float:
        """Return how long a mini-batch of this age runs in all, as a ratio to what is expected.

        It runs as long as one of those that ran longer, if there are any.
        """
        longer = bisect_right(self._ratios, age)
        if longer < len(self._ratios):
            return self._ratios[random.randrange(longer, len(self._ratios))]
        logs = math.log(age / self._ratios[-1]) if self._ratios[-1] > 0 else 0.0
        exponent = max(HEAVY, ASSUMED / (LOGS + logs))  # the longer, the less like the others
        beyond: float = (1.0 - random.random()) ** (-1.0 / exponent)
        return age * beyond


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
