"""The view of a running job, for people and programs: counts, speed, time left, present work."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._core.events import (
    AttemptFailed,
    Counts,
    JobEnded,
    JobStarted,
    Progress,
    ProgressReported,
    SlotsChanged,
)
from daskprs._core.outcomes import Status
from daskprs._report.remaining_time import AT_WORK, RemainingTime, TimeLeft

if TYPE_CHECKING:
    from daskprs._core.events import Event, SlotState

MOST_WRITTEN = 200
"""Maximum number of slots in a record; those longest in their phase are kept."""


class SlotView(NamedTuple):
    """The present work of one slot."""

    phase: str
    """The phase, as in `SlotState`."""
    for_s: float
    """Seconds in this phase."""
    mini_batch: int | None
    """Number of the mini-batch; None where the slot has none."""
    node: int
    process: str
    host: str
    pid: int
    tries_left: int | None
    """Number of attempts that are left if this one fails; None without a mini-batch."""
    timeout_in_s: float | None
    """Seconds until the timeout of the phase; None where the phase has none."""


class View(NamedTuple):
    """All that a display of a job shows."""

    standing: Progress
    elapsed_s: float = 0.0
    quiet_s: float = 0.0
    """Seconds since a mini-batch was settled."""
    per_s: float | None = None
    """Mini-batches of this run per second; None while unknown."""
    left: TimeLeft | None = None
    retried: int = 0
    """Number of failed attempts that are followed by another one."""
    slots: int = 0
    """Number of slots that the cluster offers."""
    phases: dict[str, int] = {}  # noqa: RUF012 - a default, which is never changed
    """Number of slots in each phase."""
    now: tuple[SlotView, ...] = ()
    """The work of the slots, those longest in their phase first."""
    obstacles: tuple[str, ...] = ()
    doing: str = ""
    ended: bool = False

    def record(self) -> dict[str, Any]:
        """Return the view as JSON values, in the terms of ``daskprs status --json``."""
        standing = self.standing
        return {
            "elapsed_s": round(self.elapsed_s, 3),
            "left_s": None if self.left is None else [round(limit, 1) for limit in self.left],
            "mini_batches": {
                "planned": standing.planned,
                "succeeded": standing.mini_batches.succeeded,
                "failed": standing.mini_batches.failed,
                "in_leases": standing.running,
                "waiting": standing.waiting,
                "delayed": standing.delayed,
                "of_earlier_runs": standing.recovered,
            },
            "items": {
                "total": standing.items.total,
                "succeeded": standing.items.succeeded,
                "failed": standing.items.failed,
                "not_returned": standing.not_returned,
            },
            "per_s": self.per_s,
            "retried": self.retried,
            "retry_in_s": None if (due_s := standing.retry_in_s) is None else round(due_s, 3),
            "since_settled_s": round(self.quiet_s, 3),
            "slots": self.slots,
            "phases": self.phases,
            "now": [slot._asdict() for slot in self.now[:MOST_WRITTEN]],
            "obstacles": list(self.obstacles),
            "doing": self.doing,
            "left_out": list(standing.left_out),
            "renewals": standing.renewals,
            "usage": {"spent": dict(standing.spent), "useful": dict(standing.useful)},
            "throttled": standing.throttled,
        }

    @classmethod
    def of(cls, record: dict[str, Any]) -> View:
        """Return the view of which `record` made these values."""
        counts, items, left_s = record["mini_batches"], record["items"], record["left_s"]
        planned, done, failed = counts["planned"], counts["succeeded"], counts["failed"]
        standing = Progress(
            Counts(done + failed if planned is None else planned, done, failed),
            Counts(items["total"], items["succeeded"], items["failed"]),
            plan_complete=planned is not None,
            expected=planned,
            running=counts["in_leases"],
            waiting=counts["waiting"],
            recovered=counts["of_earlier_runs"],
            left_out=tuple(record["left_out"]),
            renewals=record["renewals"],
            not_returned=items["not_returned"],
            delayed=counts["delayed"],
            retry_in_s=record["retry_in_s"],
            spent=tuple(record["usage"]["spent"].items()),
            useful=tuple(record["usage"]["useful"].items()),
            throttled=record["throttled"],
        )
        return cls(
            standing,
            record["elapsed_s"],
            record["since_settled_s"],
            record["per_s"],
            None if left_s is None else TimeLeft(*left_s),
            record["retried"],
            record["slots"],
            record["phases"],
            tuple(SlotView(**slot) for slot in record["now"]),
            tuple(record["obstacles"]),
            record["doing"],
        )


class JobWatch:
    """A listener that others ask for the view of the job; it stands before them.

    The view is made when it is asked for, at most once for each event of progress. The time left is
    estimated every second at first, and less often in a long job.
    """

    def __init__(self) -> None:
        self._remaining = RemainingTime()
        self._rate = RateMeter()
        self._stood: ProgressReported | None = None
        self._view: View | None = None
        self._left: TimeLeft | None = None
        self._left_at_s = -math.inf
        self._slots = 0
        self._retried = 0
        self._ended = False

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start of the work; 0 before the first progress."""
        return 0.0 if self._stood is None else self._stood.elapsed_s

    def tell(self, event: Event) -> None:
        """Keep what the view is made of."""
        self._remaining.tell(event)
        match event:
            case ProgressReported():
                self._see(event)
            case JobStarted(resumed=resumed):
                self._rate.is_of_resume = resumed
            case SlotsChanged(slots=slots):
                self._slots = slots
            case AttemptFailed(outcome=outcome, final=False):
                self._retried += outcome.status is not Status.THROTTLED
            case JobEnded(standing=standing, elapsed_s=elapsed_s):
                self._see(ProgressReported(standing, (), elapsed_s, 0.0))
                self._ended = True

    def close(self) -> None:
        """Do nothing."""

    def view(self) -> View | None:
        """Return the present view; None before the first progress."""
        if self._view is None and self._stood is not None:
            self._view = self._made(self._stood)
        return self._view

    def _see(self, stood: ProgressReported) -> None:
        self._stood, self._view = stood, None
        self._rate.see(stood)

    def _made(self, stood: ProgressReported) -> View:
        now = sorted(map(self._slot, stood.slots), key=lambda slot: slot.for_s, reverse=True)
        return View(
            stood.standing,
            stood.elapsed_s,
            stood.since_progress_s,
            self._rate.per_s,
            self._time_left(stood),
            self._retried,
            self._slots,
            dict(Counter(slot.phase for slot in stood.slots)),
            tuple(now),
            stood.obstacles,
            stood.doing,
            self._ended,
        )

    def _slot(self, state: SlotState) -> SlotView:
        timeout_s = self._remaining.timeout_s(state.phase)
        return SlotView(
            state.phase,
            round(state.since_s, 3),
            state.index,
            *state.place,
            None if state.index is None else self._remaining.tries_left(state.index),
            None if math.isinf(timeout_s) else round(max(0.0, timeout_s - state.since_s), 3),
        )

    def _time_left(self, stood: ProgressReported) -> TimeLeft | None:
        """Return the last estimate less the time since, or a new one if it is due."""
        since_s = stood.elapsed_s - self._left_at_s
        is_used_up = self._left is not None and since_s >= max(1.0, self._left.low_s)
        due_s = min(LONGEST_S, max(1.0, stood.elapsed_s * AGAIN_AFTER))
        if self._ended or since_s >= due_s or is_used_up:
            self._left, self._left_at_s = self._remaining.left(stood, self._slots), stood.elapsed_s
            return self._left
        if self._left is None:
            return None
        return TimeLeft(*(max(0.0, limit - since_s) for limit in self._left))


AGAIN_AFTER = 0.02
"""Share of the elapsed time after which the time left is estimated again."""
LONGEST_S = 10.0


class RateMeter:
    """Measures the speed of a job: the mean since its agents began to work.

    The time to start agents, `init` above all, does not count. The speed is a mean rather than
    that of the last seconds, since leases return together, a second's worth at a time.
    """

    def __init__(self) -> None:
        self.per_s: float | None = None
        """Mini-batches of this run per second; None while unknown."""
        self.is_of_resume = False
        self._carried: int | None = None
        """Number of mini-batches that earlier runs have given up; None before the first look."""
        self._idle_until_s = 0.0

    def see(self, stood: ProgressReported) -> None:
        """Take note of progress."""
        if self._carried is None:
            self._carried = stood.standing.mini_batches.failed if self.is_of_resume else 0
        fresh = stood.standing.settled - stood.standing.recovered - self._carried
        if fresh <= 0:
            if not any(slot.phase in AT_WORK for slot in stood.slots):
                self._idle_until_s = stood.elapsed_s
            return
        worked_s = stood.elapsed_s - self._idle_until_s
        if worked_s > 0:
            self.per_s = fresh / worked_s
