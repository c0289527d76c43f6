"""When agents that do not come up mean that a node is bad, or the job."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from daskprs.core.lease import AgentReady, InitFailed

if TYPE_CHECKING:
    from daskprs.core.actions import SlotId
    from daskprs.core.lease import LeaseReturned
    from daskprs.core.outcomes import Failure

PER_SLOT_ON_NODE = 3
"""So many failures in a row, times a node's slots: no more agents there (contract §6, rule 1)."""
PER_SLOT = 2
"""So many failures, times all slots, without a success anywhere: the job fails (rule 2) …"""
PATIENCE_S = 120.0
"""… once it has run for longer than this."""
BEFORE = "its start, the import of the script, or init()"


class InitRules:
    """Counts agents that did not come up; knows the slots of each node.

    Parameters
    ----------
    timeout_s
        So long an agent may take for `init`. When all have taken longer, the job fails (rule 3).

    """

    def __init__(self, timeout_s: float) -> None:
        self.last: Failure | None = None
        self._timeout_s = timeout_s
        self._slots: Counter[int] = Counter()
        self._in_a_row: Counter[int] = Counter()
        self._stuck: dict[SlotId, bool] = {}
        """Slots that have had an agent, and whether its `init` was too slow."""
        self._failures = 0
        self._succeeded = False

    def slot_added(self, slot: SlotId) -> None:
        """Count a slot of a node."""
        self._slots[slot.node] += 1

    def slot_lost(self, slot: SlotId) -> None:
        """Count it no more; a node without slots is forgotten, and may come back as good as new."""
        self._stuck.pop(slot, None)
        self._slots[slot.node] -= 1
        if self._slots[slot.node] == 0:
            del self._slots[slot.node], self._in_a_row[slot.node]

    def begin(self, slot: SlotId) -> None:
        """Note that a slot was given work, and needs an agent for it."""
        self._stuck.setdefault(slot, False)

    def succeed(self, slot: SlotId) -> None:
        """Note that an agent came up, or is at work."""
        self._succeeded = True
        self._in_a_row[slot.node] = 0
        self._stuck[slot] = False

    def fail(self, slot: SlotId, failure: Failure, elapsed_s: float = 0.0) -> None:
        """Note that an agent did not come up."""
        self.last = failure
        self._failures += 1
        self._in_a_row[slot.node] += 1
        self._stuck[slot] = elapsed_s >= self._timeout_s

    def hear(self, returned: LeaseReturned, slot: SlotId) -> Failure | None:
        """Note which agents came up and which did not; return the first reason why not."""
        failures = []
        for event in returned.agent_events:
            match event:
                case AgentReady():
                    self.succeed(slot)
                case InitFailed(failure=failure, elapsed_s=elapsed_s):
                    failures.append(failure)
                    self.fail(slot, failure, elapsed_s)
        if returned.results:
            self.succeed(slot)
        return failures[0] if failures else None

    def is_out(self, node: int) -> bool:
        """Say whether a node gets no more agents."""
        return 0 < PER_SLOT_ON_NODE * self._slots[node] <= self._in_a_row[node]

    def verdict(self, elapsed_s: float) -> str | None:
        """Say why the job cannot go on, if it cannot."""
        if self._failures == 0:
            return None
        if self._stuck and all(self._stuck.values()):
            return f"init() took longer than init_timeout={self._timeout_s:g} s in every process"
        if self._slots and all(map(self.is_out, self._slots)):
            return (
                f"no process got to run(): {BEFORE} failed on every node, in {self._failures} tries"
            )
        enough = 0 < PER_SLOT * self._slots.total() <= self._failures
        if elapsed_s > PATIENCE_S and enough and not self._succeeded:
            return (
                f"no process got to run(): {BEFORE} failed {self._failures} times, in "
                f"{elapsed_s:.0f} s"
            )
        return None
