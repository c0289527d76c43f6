"""Failed starts of agents, and when they exclude a node or end the job."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from daskprs.core.lease import AgentExited, AgentReady, InitFailed

if TYPE_CHECKING:
    from daskprs.core.actions import SlotId
    from daskprs.core.lease import LeaseReturned
    from daskprs.core.outcomes import Failure

PER_SLOT_ON_NODE = 3
"""A node gets no more agents after this number × its slots of failures in a row (contract §6,
rule 1)."""
PER_SLOT = 2
"""The job fails after this number × all slots of failures without any success (rule 2) …"""
PATIENCE_S = 120.0
"""… once it has run for more than this number of seconds."""
BEFORE = "its start, the import of the script, or init()"
_LINE = re.compile(r'^ *File "([^"\n]*)", line (\d+)', re.MULTILINE)


class _Error(NamedTuple):
    """The identity of an exception: two failures of `init` are the same if theirs are equal."""

    kind: str
    message: str
    line: tuple[str, str] | None
    """File and line number of the raising line, where the traceback has one."""


def _error_of(failure: Failure) -> _Error | None:
    """Return the identity of a failure; None for a retryable one."""
    if failure.retryable:
        return None
    lines = _LINE.findall(failure.traceback)
    return _Error(failure.kind, failure.message, lines[-1] if lines else None)


class StartupFailures:
    """Counts failed starts of agents; knows the slots of each node.

    Parameters
    ----------
    timeout_s
        Timeout of `init`. When all agents have exceeded it, the job fails (rule 3).

    """

    def __init__(self, timeout_s: float) -> None:
        self.last: Failure | None = None
        self._timeout_s = timeout_s
        self._slots: Counter[int] = Counter()
        self._in_a_row: Counter[int] = Counter()
        self._stuck: dict[SlotId, bool] = {}
        """For each slot that was given work, whether `init` of its agent was too slow."""
        self._failures = 0
        self._succeeded = False
        self._up: set[SlotId] = set()
        """Slots whose agent is up and has not ended."""
        self._open: set[SlotId] = set()
        """Those, and slots with a lease whose agent may be up for all that is known."""
        self._untried: set[SlotId] = set()
        """Slots that were given work, and of whose first agent nothing is known yet."""
        self._begun_at: dict[SlotId, int] = {}
        """The number of failures before the latest start in each slot."""
        self._latest: dict[SlotId, _Error | None] = {}
        """The latest error of each slot that was given work; None before its agent failed."""
        self._first: dict[tuple[int, _Error], int] = {}
        """The number of failures at the first occurrence of an error on a node."""
        self._again: set[tuple[int, _Error]] = set()
        """Nodes and errors that occurred there again, in a process started after the first one."""

    @property
    def has_failed(self) -> bool:
        """Whether any start has failed: from then on each new agent reports that it is up."""
        return self._failures > 0

    def slot_added(self, slot: SlotId) -> None:
        """Count a slot of a node."""
        self._slots[slot.node] += 1

    def slot_lost(self, slot: SlotId) -> None:
        """Forget a slot; a node without slots is forgotten too, and may return as a new one."""
        self._stuck.pop(slot, None)
        self._untried.discard(slot)
        self._begun_at.pop(slot, None)
        self._latest.pop(slot, None)
        self._ended(slot)
        self._slots[slot.node] -= 1
        if self._slots[slot.node] == 0:
            del self._slots[slot.node], self._in_a_row[slot.node]
            self._first = {at: n for at, n in self._first.items() if at[0] != slot.node}
            self._again = {at for at in self._again if at[0] != slot.node}

    def begin(self, slot: SlotId) -> None:
        """Note that a slot was given work, and needs an agent for it."""
        if slot not in self._stuck:
            self._untried.add(slot)
        self._stuck.setdefault(slot, False)
        self._latest.setdefault(slot, None)
        self._begun_at[slot] = self._failures
        self._open.add(slot)

    def withdraw(self, slot: SlotId) -> None:
        """Note that the work was taken from a slot before it had an agent for it."""
        if slot not in self._up:
            self._open.discard(slot)
        if slot in self._untried:
            self._untried.discard(slot)
            self._stuck.pop(slot, None)
            self._latest.pop(slot, None)

    def succeed(self, slot: SlotId) -> None:
        """Note that an agent came up, or is at work."""
        self._untried.discard(slot)
        self._succeeded = True
        self._in_a_row[slot.node] = 0
        self._stuck[slot] = False
        self._up.add(slot)
        self._open.add(slot)
        self._latest[slot] = None
        self._first.clear()
        self._again.clear()

    def fail(self, slot: SlotId, failure: Failure, elapsed_s: float = 0.0) -> None:
        """Note that an agent did not come up."""
        self._untried.discard(slot)
        self.last = failure
        self._failures += 1
        self._in_a_row[slot.node] += 1
        self._stuck[slot] = elapsed_s >= self._timeout_s
        self._ended(slot)
        self._remember(slot, _error_of(failure))

    def _ended(self, slot: SlotId) -> None:
        self._up.discard(slot)
        self._open.discard(slot)

    def _remember(self, slot: SlotId, error: _Error | None) -> None:
        """Record an error, and whether a process that started after the first one repeated it."""
        self._latest[slot] = error
        if error is None:
            return
        at = slot.node, error
        first = self._first.setdefault(at, self._failures)
        if first <= self._begun_at.get(slot, 0):
            self._again.add(at)

    def hear(self, returned: LeaseReturned, slot: SlotId) -> Failure | None:
        """Record the agents that are up and those that failed; return the first failure."""
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
        last = returned.agent_events[-1] if returned.agent_events else None
        if slot not in self._up or returned.vacant or isinstance(last, AgentExited):
            self._ended(slot)
        return failures[0] if failures else None

    def is_out(self, slot: SlotId) -> bool:
        """Return whether a slot has no agent, and its node gets no more agents."""
        return slot not in self._up and self._gets_no_more(slot.node)

    def _gets_no_more(self, node: int) -> bool:
        return 0 < PER_SLOT_ON_NODE * self._slots[node] <= self._in_a_row[node]

    def verdict(self, elapsed_s: float) -> str | None:
        """Return the reason why the job cannot go on; None if it can."""
        if self._failures == 0:
            return None
        if self._stuck and all(self._stuck.values()):
            return f"init() took longer than init_timeout={self._timeout_s:g} s in every process"
        if self._is_hopeless():
            return (
                f"{self._nobody}: the import of the script, or init(), failed with the "
                f"same error in {self._failures} processes, on every node, also in processes that "
                "started after the first failure"
            )
        if self._slots and not self._open and all(map(self._gets_no_more, self._slots)):
            return f"{self._nobody}: {BEFORE} failed on every node, in {self._failures} tries"
        enough = 0 < PER_SLOT * self._slots.total() <= self._failures
        if elapsed_s > PATIENCE_S and enough and not self._succeeded:
            return (
                f"no process got to run(): {BEFORE} failed {self._failures} times, in "
                f"{elapsed_s:.0f} s"
            )
        return None

    @property
    def _nobody(self) -> str:
        got = "gets to run() any more" if self._succeeded else "got to run()"
        return f"no process {got}"

    def _is_hopeless(self) -> bool:
        """Return whether one error was repeated on every node, and every process ended with it.

        A process that has not failed yet may still come up: its device may work, say.
        """
        errors = set(self._latest.values())
        if self._up or len(errors) != 1:
            return False
        (error,) = errors
        return error is not None and all((node, error) in self._again for node in self._slots)
