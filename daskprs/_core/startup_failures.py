"""Failed starts of agents, and when they exclude a node or end the job."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from daskprs._core.lease import AgentExited, AgentReady, InitFailed
from daskprs._core.ledger_state import StartupError

if TYPE_CHECKING:
    from daskprs._core.lease import LeaseReturned
    from daskprs._core.ledger_state import LedgerState, SlotRecord
    from daskprs._core.outcomes import Failure

PER_SLOT_ON_NODE = 3
"""A node gets no more agents after this number × its slots of failures in a row (contract §6,
rule 1)."""
PER_SLOT = 2
"""The job fails after this number × all slots of failures without any success (rule 2) …"""
PATIENCE_S = 120.0
"""… once it has run for more than this number of seconds."""
BEFORE = "its start, the import of the script, or init()"
_LINE = re.compile(r'^ *File "([^"\n]*)", line (\d+)', re.MULTILINE)


def _error_of(failure: Failure) -> StartupError | None:
    """Return the identity of a failure; None for a retryable one."""
    if failure.retryable:
        return None
    lines = _LINE.findall(failure.traceback)
    return StartupError(failure.kind, failure.message, lines[-1] if lines else None)


class StartupFailures:
    """Counts failed starts of agents, and says which nodes get no more agents."""

    def __init__(self, state: LedgerState) -> None:
        self._state = state
        self.given_up: dict[int, None] = {}
        """All nodes that got no more agents at any time, while others did."""
        self._last: Failure | None = None
        self._last_on: dict[int, Failure] = {}
        self._was_idle = False
        """Whether the last `init` that failed was ended since it did nothing."""
        self._in_a_row: Counter[int] = Counter()
        """Number of failed starts on each node since the last success there."""
        self._failures = 0
        self._succeeded = False
        self._first: dict[tuple[int, StartupError], int] = {}
        """The number of failures at the first occurrence of an error on a node."""
        self._again: set[tuple[int, StartupError]] = set()
        """Nodes and errors that occurred there again, in a process started after the first one."""

    @property
    def has_failed(self) -> bool:
        """Whether any start has failed: from then on each new agent reports that it is up."""
        return self._failures > 0

    def forget_node(self, node: int) -> None:
        """Forget a node without slots; it may return as a new one."""
        del self._in_a_row[node]
        self._last_on.pop(node, None)
        self._first = {at: count for at, count in self._first.items() if at[0] != node}
        self._again = {at for at in self._again if at[0] != node}

    def begin(self, slot: SlotRecord) -> None:
        """Record that a slot was given work, and needs an agent for it."""
        slot.had_work = True
        slot.failures_before = self._failures

    def withdraw(self, slot: SlotRecord) -> None:
        """Record that the work was taken from a slot before it had an agent for it."""
        slot.had_work = slot.is_known

    def succeed(self, slot: SlotRecord) -> None:
        """Record that an agent came up, or is at work."""
        slot.is_known = slot.is_up = self._succeeded = True
        slot.is_stuck = False
        slot.latest_error = None
        slot.failures_in_a_row = 0
        self._in_a_row[slot.id.node] = 0
        self._first.clear()
        self._again.clear()

    def fail(self, slot: SlotRecord, failure: Failure, elapsed_s: float = 0.0) -> None:
        """Record that an agent did not come up, and whether its error has been there before."""
        self._last = self._last_on[slot.id.node] = failure
        self._failures += 1
        self._in_a_row[slot.id.node] += 1
        slot.failures_in_a_row += 1
        slot.is_known = True
        slot.is_up = False
        slot.is_stuck = elapsed_s >= self._state.limits.init_timeout_s
        slot.latest_error = error = _error_of(failure)
        if error is not None:
            at = slot.id.node, error
            if self._first.setdefault(at, self._failures) <= slot.failures_before:
                self._again.add(at)
        if slot.failures_in_a_row == PER_SLOT_ON_NODE + 1 and self.is_worse(slot):
            self._state.remark(
                "warning",
                f"{PER_SLOT_ON_NODE + 1} processes in a row did not come up in one slot of node "
                f"{slot.id.node}, on worker {slot.id.worker}, the last with {failure}. Others of "
                "the node are up. This slot waits longer before each further try.",
            )

    def is_worse(self, slot: SlotRecord) -> bool:
        """Return whether a slot fails again and again, while others keep its node in use.

        Two workers of a host are one node. One without a package that the other has would start
        processes without end, six a second.
        """
        return slot.failures_in_a_row > PER_SLOT_ON_NODE and any(
            other.is_up and other.id.node == slot.id.node for other in self._state.slots.values()
        )

    def _tell_given_up(self) -> None:
        """Say that others do the work of a node: else nobody would see that it rests.

        A node may come to this also as it loses slots, or as another one joins.
        """
        gone = [node for node in self._state.node_slots if self._gets_no_more(node)]
        if len(gone) == len(self._state.node_slots):
            return
        for node in gone:
            if node not in self.given_up:
                self.given_up[node] = None
                self._state.remark(
                    "warning",
                    f"node {node} gets no more processes: {self._in_a_row[node]} in a row did not "
                    f"come up there, the last with {self._last_on[node]}. Other nodes do its work.",
                )

    def record_events(self, returned: LeaseReturned, slot: SlotRecord) -> Failure | None:
        """Record the agents that are up and those that failed; return the first failure."""
        failures = []
        for event in returned.agent_events:
            match event:
                case AgentReady():
                    self.succeed(slot)
                case InitFailed(_, failure, elapsed_s, was_idle):
                    failures.append(failure)
                    self.fail(slot, failure, elapsed_s)
                    slot.is_stuck |= was_idle
                    self._was_idle = was_idle
        if returned.results:
            self.succeed(slot)
        last = returned.agent_events[-1] if returned.agent_events else None
        if returned.vacant or isinstance(last, AgentExited):
            slot.is_up = False
        return failures[0] if failures else None

    def excludes(self, slot: SlotRecord) -> bool:
        """Return whether a slot has no agent, and its node gets no more agents."""
        return not slot.is_up and self._gets_no_more(slot.id.node)

    def _gets_no_more(self, node: int) -> bool:
        return 0 < PER_SLOT_ON_NODE * self._state.node_slots[node] <= self._in_a_row[node]

    def judge(self) -> None:
        """End the job if it cannot go on; else say which nodes get no more agents."""
        if not self._failures:
            return
        self._tell_given_up()
        why = self._verdict()
        if why is not None:
            self._state.abort(why, self._state.errors.final.commonest or self._last)

    def _verdict(self) -> str | None:
        """Return the reason why the job cannot go on; None if it can."""
        state = self._state
        slots = state.slots.values()
        with_work = [slot for slot in slots if slot.had_work]
        if with_work and all(slot.is_stuck for slot in with_work):
            limits = state.limits
            if self._was_idle:
                idle_s = limits.init_idle_timeout_s
                return f"init() did nothing for init_idle_timeout={idle_s:g} s in every process"
            timeout_s = limits.init_timeout_s
            return f"init() took longer than init_timeout={timeout_s:g} s in every process"
        got = "gets to run() any more" if self._succeeded else "got to run()"
        if self._is_hopeless(with_work):
            return (
                f"no process {got}: the import of the script, or init(), failed with the "
                f"same error in {self._failures} processes, on every node, also in processes that "
                "started after the first failure"
            )
        any_open = any(slot.is_up or slot.lease_id is not None for slot in slots)
        if slots and not any_open and all(map(self._gets_no_more, state.node_slots)):
            return f"no process {got}: {BEFORE} failed on every node, in {self._failures} tries"
        enough = 0 < PER_SLOT * len(slots) <= self._failures
        if state.elapsed_s > PATIENCE_S and enough and not self._succeeded:
            return (
                f"no process got to run(): {BEFORE} failed {self._failures} times, in "
                f"{state.elapsed_s:.0f} s"
            )
        return None

    def _is_hopeless(self, with_work: list[SlotRecord]) -> bool:
        """Return whether one error was repeated on every node, and every process ended with it.

        A process that has not failed yet may still come up: its device may work, say.
        """
        errors = {slot.latest_error for slot in with_work}
        if len(errors) != 1 or any(slot.is_up for slot in with_work):
            return False
        (error,) = errors
        nodes = self._state.node_slots
        return error is not None and all((node, error) in self._again for node in nodes)
