"""The progress of a job in one line of plain text, with its speed and the reason of a stall."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from daskprs.report.humanize import counted, duration

if TYPE_CHECKING:
    from daskprs.core.events import Progress, ProgressReported, SlotState

AT_WORK = frozenset({"loading", "running", "returning"})
QUIET_S = 5.0
"""Seconds since the last settled mini-batch after which the line gives a reason."""
FIRST_S = 1.0
"""The same, in seconds, until the first mini-batch is settled."""
PHASES = {
    "running": "run() running",
    "loading": "loading",
    "returning": "returning results",
    "init": "init() running",
    "starting": "agents starting",
    "shutdown": "shutdown() running",
    "idle": "agents idle",
}
"""Words for each phase, the most important first: a running slot explains idle ones."""


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


class View(NamedTuple):
    """The values that a progress display shows."""

    stood: ProgressReported
    pace: Pace = Pace()
    retried: int = 0
    """Number of failed attempts that are followed by another one."""
    slots: int = 0
    """Number of slots that the cluster offers."""
    ended: bool = False


class _Part(NamedTuple):
    """A piece of the line; if the line is too long, the highest number is left out first."""

    dispensable: int
    text: str


def fraction_done(view: View) -> float | None:
    """Return the share of settled mini-batches; None while their total is unknown."""
    standing = view.stood.standing
    total = total_of(standing)
    return min(1.0, settled(standing) / total) if total else None


def progress_text(view: View, width: int | None = None) -> str:
    """Return done and total, rate, failures, remaining time, and the reason of a stall.

    A text of more than `width` characters loses its least important parts; the rest is cut.
    """
    parts = [part for part in _parts(view) if part.text]
    while width is not None and len(parts) > 1 and len(_joined(parts)) > width:
        parts.remove(max(parts))
    text = _joined(parts)
    return text if width is None or len(text) <= width else f"{text[: max(0, width - 1)]}…"


def _joined(parts: list[_Part]) -> str:
    return ", ".join(part.text for part in parts)


def _parts(view: View) -> list[_Part]:
    stood, pace = view.stood, view.pace
    standing = stood.standing
    done, total = settled(standing), total_of(standing)
    counts = f"{done:,}" if total is None else f"{done:,}/{total:,}"
    left_s = None if view.ended else pace.left_s
    return [
        _Part(0, f"{counts} mini-batches"),
        _Part(6, "" if pace.per_s is None else _rate(pace.per_s)),
        _Part(2, _some(standing.mini_batches.failed, "failed")),
        _Part(5, _some(view.retried, "retried")),
        _Part(7, _some(standing.recovered, "done in an earlier run")),
        _Part(4, duration(stood.elapsed_s)),
        _Part(3, f"{duration(left_s)} left" if left_s else ""),
        _Part(1, "" if view.ended else why_waiting(stood, view.slots)),
    ]


def _some(count: int, what: str) -> str:
    return f"{count:,} {what}" if count else ""


def _rate(per_s: float) -> str:
    """Return mini-batches per second, or per minute where they take long."""
    if per_s >= 10:  # noqa: PLR2004 - a digit more for few
        return f"{per_s:,.0f}/s"
    return f"{per_s:.1f}/s" if per_s >= 1 else f"{60 * per_s:.1f}/min"


def why_waiting(stood: ProgressReported, slots: int) -> str:
    """Return one clause about the activity of the slots; empty while the job moves.

    The cluster offers `slots` slots: 0 until workers have reported theirs.
    """
    standing = stood.standing
    fresh = settled(standing) - standing.recovered
    if standing.plan_complete and settled(standing) >= standing.mini_batches.total:
        return "stopping processes"
    if stood.since_progress_s < (QUIET_S if fresh > 0 else FIRST_S):
        return ""
    if slots == 0:
        return f"waiting for workers for {duration(stood.since_progress_s)}"
    if not stood.slots:
        return f"agents starting for {duration(stood.since_progress_s)}"
    return _doing(stood.slots)


def _doing(slots: tuple[SlotState, ...]) -> str:
    """Return the most important phase, the slot longest in it, and the number of such slots."""
    order = list(PHASES)
    phase = min((slot.phase for slot in slots), key=order.index)
    same = [slot for slot in slots if slot.phase == phase]
    longest = max(same, key=_since)
    text = f"{PHASES[phase]} for {duration(longest.since_s)}"
    if longest.index is not None and phase in ("running", "loading", "returning"):
        text += f" on mini-batch {longest.index} in {longest.place.process}"
        return f"{text} and on {len(same) - 1} more" if len(same) > 1 else text
    return f"{text} on {len(same)} of {counted(len(slots), 'process')}"


def _since(slot: SlotState) -> float:
    return slot.since_s
