"""Watchdog over silent workers and overdue slots: the second guard of every deadline.

The first guard is the worker, which kills an agent that takes too long. It cannot do so when the
worker itself has stopped, or hangs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daskprs._core.actions import SlotId
    from daskprs._core.events import SlotState

SILENT_S = 30.0
"""Seconds without a report after which a worker counts as lost; workers report twice a second.
Dask likewise treats a worker that it cannot reach as lost."""
RECENTLY_S = 3.0
"""Seconds of silence count only while some worker has reported within these. If none has, the
scheduler or the network hangs; and once it goes on, the reports do not all come at once."""
TICK_AT_MOST_S = 1.0
"""Maximum seconds of silence counted per tick: a pause of the driver itself does not count."""
GRACE_S = 60.0
"""Killing takes time: stacks are dumped, and the kernel waits for disks and devices."""


class Watchdog:
    """Counts how long workers are silent, and how long slots stay in one phase.

    `deadlines_s` has the maximum seconds in a phase, by its name; other phases have no deadline.
    """

    def __init__(self, deadlines_s: Mapping[str, float]) -> None:
        self._deadlines_s = deadlines_s
        self._silence_s: dict[str, float] = {}
        self._overdue_s: dict[SlotId, float] = {}
        """The slots that are beyond a deadline, and for how many seconds."""
        self._now_s: float | None = None
        self.silent: set[str] = set()
        """The workers that have been silent for too long."""

    def hear(self, worker: str) -> None:
        """Record a report of a worker."""
        self._silence_s[worker] = 0.0
        self.silent.discard(worker)

    def forget(self, worker: str) -> None:
        """Stop watching a worker."""
        self._silence_s.pop(worker, None)
        self.silent.discard(worker)

    def tick(self, now_s: float) -> None:
        """Count the time since the last tick, and add workers silent for too long to `silent`."""
        passed_s = 0.0 if self._now_s is None else min(TICK_AT_MOST_S, now_s - self._now_s)
        self._now_s = now_s
        for slot in self._overdue_s:
            self._overdue_s[slot] += passed_s
        if any(silence_s < RECENTLY_S for silence_s in self._silence_s.values()):
            for worker in self._silence_s:
                self._silence_s[worker] += passed_s
            self.silent.update(
                w for w, silence_s in self._silence_s.items() if silence_s > SILENT_S
            )

    def found(self, states: Mapping[SlotId, SlotState]) -> dict[SlotId, str]:
        """Return the slots whose agent should have been killed long ago, and why.

        A lease that comes back while its agent works is watched again once the driver goes on with
        it. So the seconds of a pause of the driver do not count.
        """
        self._overdue_s = {
            slot: self._overdue_s.get(slot, 0.0)
            for slot, state in states.items()
            if state.since_s > self._deadlines_s.get(state.phase, float("inf"))
        }
        late = {slot: states[slot] for slot, for_s in self._overdue_s.items() if for_s > GRACE_S}
        return {
            slot: (
                f"{state.place.process} on {slot.worker} has been {state.phase} for "
                f"{state.since_s:.0f} s, and its worker has not ended it"
            )
            for slot, state in late.items()
        }
