"""Workers and slots that should have been heard of: the second guard on every deadline.

The first one is the worker's own, which kills an agent that takes too long. It cannot when the
worker itself has stopped, or hangs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daskprs.core.actions import SlotId
    from daskprs.core.events import SlotState

SILENT_S = 30.0
"""A worker tells twice a second. One that says nothing for so long is taken for lost, as Dask takes
one that cannot be reached by the network."""
RECENTLY_S = 3.0
"""Only while another one was heard: if none is, it is the scheduler or the network that hangs."""
TICK_AT_MOST_S = 1.0
"""What happens while the driver itself stands still counts for nobody's silence."""
GRACE_S = 60.0
"""Killing takes time: stacks are dumped, and the kernel waits for disks and devices."""


class Watchdog:
    """Counts how long workers are silent, and how long slots are at one thing.

    Parameters
    ----------
    deadlines_s
        How long a slot may be in a phase, by its name; others are without a deadline.

    """

    def __init__(self, deadlines_s: Mapping[str, float]) -> None:
        self._deadlines_s = deadlines_s
        self._silence_s: dict[str, float] = {}
        self._now_s: float | None = None
        self.silent: set[str] = set()
        """The workers that have said nothing for too long."""

    def hear(self, worker: str) -> None:
        """Note that a worker has said something."""
        self._silence_s[worker] = 0.0
        self.silent.discard(worker)

    def forget(self, worker: str) -> None:
        """Wait for a worker no more."""
        self._silence_s.pop(worker, None)
        self.silent.discard(worker)

    def tick(self, now_s: float) -> None:
        """Let time pass; those that are silent for too long are in `silent` then."""
        passed_s = 0.0 if self._now_s is None else min(TICK_AT_MOST_S, now_s - self._now_s)
        self._now_s = now_s
        for worker in self._silence_s:
            self._silence_s[worker] += passed_s
        if any(silence_s < RECENTLY_S for silence_s in self._silence_s.values()):
            self.silent.update(
                w for w, silence_s in self._silence_s.items() if silence_s > SILENT_S
            )

    def found(self, states: Mapping[SlotId, SlotState]) -> dict[SlotId, str]:
        """Return the slots whose agent should have been killed long ago, and why."""
        return {
            slot: (
                f"{state.place.process} on {slot.worker} has been {state.phase} for "
                f"{state.since_s:.0f} s, and its worker has not ended it"
            )
            for slot, state in states.items()
            if state.since_s > self._deadlines_s.get(state.phase, float("inf")) + GRACE_S
        }
