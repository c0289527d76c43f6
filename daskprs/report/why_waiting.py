"""Why nothing moves, when nothing moves."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from daskprs.report.words import counted, duration

if TYPE_CHECKING:
    from daskprs.core.events import SlotState, Stood

QUIET_S = 5.0
"""A job that settled something in this time needs no explanation."""
WHAT = {
    "starting": "agent processes are starting",
    "init": "init() running",
    "loading": "loading",
    "running": "run() running",
    "shutdown": "shutdown() running",
    "idle": "idle",
}


def why_waiting(stood: Stood) -> str:
    """Return one clause that says what the slots are doing; empty while the job moves."""
    if stood.since_progress_s < QUIET_S:
        return ""
    if not stood.slots:
        return f"no agent process for {duration(stood.since_progress_s)}"
    counts = Counter(state.phase for state in stood.slots)
    phase, count = counts.most_common(1)[0]
    longest = max((state for state in stood.slots if state.phase == phase), key=_since)
    text = f"{WHAT[phase]} for {duration(longest.since_s)}"
    if longest.index is not None:
        text += f" on mini-batch {longest.index} in {longest.place.process}"
    return f"{text} ({count} of {counted(len(stood.slots), 'process')})"


def _since(state: SlotState) -> float:
    return state.since_s
