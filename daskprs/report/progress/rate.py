"""The speed of a job, and its remaining time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from daskprs.core.events import Progress, ProgressReported

AT_WORK = frozenset({"loading", "running", "returning"})


class Pace(NamedTuple):
    """Speed and time left; None while unknown."""

    per_s: float | None = None
    """Mini-batches of this run per second."""
    left_s: float | None = None


class RateMeter:
    """Measures the pace of a job: the mean since its agents began to work.

    The time to start agents, `init` above all, does not count. The pace is a mean rather than the
    speed of the last seconds, since leases return together, a second's worth at a time.
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
    """Return the number of mini-batches of the plan; None where it is unknown."""
    return standing.mini_batches.total if standing.plan_complete else standing.expected


def settled(standing: Progress) -> int:
    """Return the number of mini-batches that are done or given up."""
    return standing.mini_batches.succeeded + standing.mini_batches.failed
