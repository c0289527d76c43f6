"""The reason of a stall, for the progress line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs.report.humanize import counted, duration
from daskprs.report.progress.rate import settled

if TYPE_CHECKING:
    from daskprs.core.events import ProgressReported, SlotState

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


def why_waiting(stood: ProgressReported, slots: int) -> str:
    """Return one clause about the activity of the slots; empty while the job moves.

    Parameters
    ----------
    stood
        The progress of the job.
    slots
        Number of slots that the cluster offers: 0 until workers have reported theirs.

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
