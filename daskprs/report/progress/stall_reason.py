"""Why nothing moves, when nothing moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs.report.humanize import counted, duration
from daskprs.report.progress.rate import settled

if TYPE_CHECKING:
    from daskprs.core.events import ProgressReported, SlotState

QUIET_S = 5.0
"""A job that settled something in this time needs no explanation."""
FIRST_S = 1.0
"""The same as long as nothing has been settled: everybody waits for the first one."""
PHASES = {
    "running": "run() running",
    "loading": "loading",
    "returning": "returning results",
    "init": "init() running",
    "starting": "agents starting",
    "shutdown": "shutdown() running",
    "idle": "agents idle",
}
"""What is said of each, the most telling first: one that runs is why the others are idle."""


def why_waiting(stood: ProgressReported, slots: int) -> str:
    """Return one clause that says what the slots are doing; empty while the job moves.

    Parameters
    ----------
    stood
        How far the job is.
    slots
        How many the cluster offers: none until workers have told of themselves.

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
    """Say what keeps the slots: the longest that does the most telling thing, and how many."""
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
