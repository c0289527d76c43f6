"""When agents that do not come up mean that a node is bad, or the job."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from daskprs.core.outcomes import Failure

PER_SLOT_ON_NODE = 3
"""So many failures in a row, times the slots of a node: it gets no more agents (contract rule 1)."""
PER_SLOT = 2
"""So many failures, times all slots, without a success anywhere: the job fails (rule 2) …"""
PATIENCE_S = 120.0
"""… once it has run for so long."""


class InitRules:
    """Counts failures of `init`; knows the slots of each node."""

    def __init__(self) -> None:
        self.last: Failure | None = None
        self._slots: dict[int, int] = {}
        self._in_a_row: dict[int, int] = {}
        self._failures = 0
        self._succeeded = False

    def slot_added(self, node: int) -> None:
        """Count a slot of a node."""
        self._slots[node] = self._slots.get(node, 0) + 1

    def slot_lost(self, node: int) -> None:
        """Count it no more; a node without slots is forgotten."""
        self._slots[node] -= 1
        if self._slots[node] == 0:
            del self._slots[node]
            self._in_a_row.pop(node, None)

    def succeed(self, node: int) -> None:
        """An agent came up."""
        self._succeeded = True
        self._in_a_row[node] = 0

    def fail(self, node: int, failure: Failure) -> None:
        """An agent did not come up."""
        self.last = failure
        self._failures += 1
        self._in_a_row[node] = self._in_a_row.get(node, 0) + 1

    def is_out(self, node: int) -> bool:
        """Say whether a node gets no more agents (rule 1)."""
        slots = self._slots.get(node, 0)
        return slots > 0 and self._in_a_row.get(node, 0) >= PER_SLOT_ON_NODE * slots

    def verdict(self, elapsed_s: float) -> str | None:
        """Say why the job cannot go on, if it cannot."""
        slots = sum(self._slots.values())
        if self._slots and all(self.is_out(node) for node in self._slots):
            return f"init() failed {self._failures} times, on every node"
        if (
            elapsed_s > PATIENCE_S
            and not self._succeeded
            and self._failures >= PER_SLOT * slots > 0
        ):
            return f"init() failed {self._failures} times and has never succeeded"
        return None
