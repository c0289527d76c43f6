"""How fast a job goes, and how long it will take."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from daskprs.core.events import Progress, ProgressReported

AT_WORK = frozenset({"loading", "running", "returning"})


class Pace(NamedTuple):
    """Speed and time left; None while nobody can say."""

    per_s: float | None = None
    """Mini-batches of this run per second."""
    left_s: float | None = None


class RateMeter:
    """Watches a job, and tells its pace: the mean since its agents began to work.

    What was spent on starting them, on `init` above all, says nothing about the rest. It is a mean,
    not the speed of the last seconds: leases come back together, a second's worth at a time.
    """

    def __init__(self) -> None:
        self._idle_until_s = 0.0

    def pace(self, stood: ProgressReported) -> Pace:
        """Return the pace so far."""
        standing = stood.standing
        fresh = settled(standing) - standing.recovered
        if fresh <= 0:
            if not any(slot.phase in AT_WORK for slot in stood.slots):
                self._idle_until_s = stood.elapsed_s
            return Pace()
        worked_s = stood.elapsed_s - self._idle_until_s
        if worked_s <= 0:
            return Pace()
        total = total_of(standing)
        per_s = fresh / worked_s
        return Pace(per_s, None if total is None else max(0, total - settled(standing)) / per_s)


def total_of(standing: Progress) -> int | None:
    """Return how many mini-batches there will be, where that is known."""
    return standing.mini_batches.total if standing.plan_complete else standing.expected


def settled(standing: Progress) -> int:
    """Return how many mini-batches are done or given up."""
    return standing.mini_batches.succeeded + standing.mini_batches.failed
