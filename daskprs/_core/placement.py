"""The slots that get work, and the mini-batches that a slot leaves to others."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from daskprs._core.quarantine import Device, Location, Node, Quarantine

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from daskprs._core.actions import SlotId
    from daskprs._core.agent_allocation import AgentAllocator
    from daskprs._core.entry import Entry
    from daskprs._core.lease import AgentAssignment
    from daskprs._core.ledger_state import AgentRecord, InFlightLease, LedgerState, SlotRecord
    from daskprs._core.startup_failures import StartupFailures

ELSEWHERE_S = 30.0
"""Seconds after a failure in which a retry avoids nodes where it has failed. Then any free slot
will do: the other nodes may be busy for hours."""
ROUNDS = 3
"""Rounds in which free slots are filled. Each round skips fewer mini-batches than the last."""


class Placement:
    """Knows which slots may get work: none on a node without agents, or where everything fails."""

    def __init__(
        self, state: LedgerState, startup: StartupFailures, allocator: AgentAllocator
    ) -> None:
        self.quarantine = Quarantine(state)
        self._state = state
        self._startup = startup
        self._allocator = allocator

    @staticmethod
    def locations(flight: InFlightLease) -> tuple[Location, ...]:
        """Return the locations of the agent of a lease: its devices, its node."""
        node = flight.slot.id.node
        return *(Device(node, device) for device in flight.agent.devices), Node(node)

    def usable(self) -> list[SlotRecord]:
        """Return the slots that may get work; all with agents, if quarantine would leave none."""
        slots = self._state.slots.values()
        staffed = [slot for slot in slots if not self._startup.excludes(slot)]
        if not self.quarantine.any:
            return staffed
        return [slot for slot in staffed if self.is_good(slot)] or staffed

    def is_good(self, slot: SlotRecord) -> bool:
        """Return whether a slot's node may have agents, and no quarantine affects the slot."""
        if self._startup.excludes(slot):
            return False
        node, quarantine = slot.id.node, self.quarantine
        bad_devices = quarantine.devices(node)
        return not (quarantine.holds([Node(node)]) or self._allocator.lacks(slot, bad_devices))

    def any_good(self) -> bool:
        """Return whether any slot is good."""
        return any(map(self.is_good, self._state.slots.values()))

    def assignment(self, slot: SlotRecord) -> AgentAssignment | None:
        """Return the assignment of a new agent, if the slot needs one, without bad devices."""
        bad_devices = self.quarantine.devices(slot.id.node) if self.is_good(slot) else ()
        return self._allocator.assignment(slot, bad_devices)

    def probes(self, free: Iterable[SlotRecord]) -> Iterator[tuple[SlotRecord, Location]]:
        """Yield a free slot at a location whose next probe is due, and begin the probe."""
        for location in self.quarantine.due():
            for slot in free:
                if (
                    slot.id.node == location.node
                    and not self._startup.excludes(slot)
                    and (isinstance(location, Node) or self._lacks_just(slot, location))
                ):
                    self.quarantine.begin_probe(location)
                    yield slot, location
                    return

    def _lacks_just(self, slot: SlotRecord, location: Location) -> bool:
        return isinstance(location, Device) and self._allocator.lacks(slot, {location.device})

    def replace_agents(self, bad: Collection[Location]) -> Iterator[AgentRecord]:
        """Let the next leases replace the agents that use a bad device; yield these agents."""
        devices = {(one.node, one.device) for one in bad if isinstance(one, Device)}
        for slot in self._state.slots.values() if devices else ():
            agent = slot.agent
            used = agent.devices if agent else ()
            if agent and any((slot.id.node, device) in devices for device in used):
                slot.agent = None
                yield agent


class RetryPlacement:
    """Decides which mini-batches a free slot skips, so that a better slot runs them.

    While a mini-batch of a lost worker runs on a worker, its slots skip all others of lost workers.
    In the first round, a slot skips mini-batches that had no success on its node; in later rounds,
    only for `ELSEWHERE_S` after their failure. A slot skips what failed in the slot itself, except
    in the last round. `usable` are the slots that may get work.
    """

    def __init__(self, state: LedgerState, usable: Collection[SlotRecord] = ()) -> None:
        self.slots = len(usable)
        """Number of slots that may get work."""
        self.slots_of = Counter(slot.id.worker for slot in usable)
        """Number of these slots by worker."""
        self._state = state
        self._nodes = {slot.id.node for slot in usable}

    def skips(self, entry: Entry, slot: SlotId, round_: int) -> bool:
        """Return whether a slot skips an entry in a round, counted from 0."""
        if entry.of_lost_worker and self._beside_another(slot):
            return True
        is_new = not self._has_run_any(slot)
        if entry.runs_first and round_ < ROUNDS - 1 and not is_new:
            return True
        if not entry.failed_on:
            return False
        waits = self._state.now_s < entry.elsewhere_until_s
        if self._has_other_node(entry, slot) and (round_ == 0 or waits):
            return True
        is_of_process = not (entry.runs_first and is_new)
        failed_here = is_of_process and entry.failed_on[-1] == slot
        return round_ < ROUNDS - 1 and self.slots > 1 and failed_here

    def reason(self, entry: Entry, slot: SlotId) -> str:
        """Return why a retry goes to a slot, for the log."""
        if not entry.failed_on:
            return "any free slot may run it, since it was not found to fail anywhere"
        nodes = sorted({tried.node for tried in entry.failed_on})
        words = "node" if len(nodes) == 1 else "nodes"
        before = f"it had no success on {words} {', '.join(map(str, nodes))}"
        if slot.node not in nodes:
            return f"{before}, and was not on this one"
        if not self._has_other_node(entry, slot):
            return f"{before}, and no other node has a usable slot"
        waited = f"was free for {ELSEWHERE_S:.0f} s" if entry.elsewhere_until_s else "is free"
        return f"{before}, and no slot of another node {waited}"

    def _has_run_any(self, slot: SlotId) -> bool:
        """Return whether the agent of a slot has run a mini-batch already."""
        agent = self._state.slots[slot].agent
        return agent is not None and not (agent.is_worn or agent.is_done) and agent.attempts > 0

    def _beside_another(self, slot: SlotId) -> bool:
        """Return whether a mini-batch of a lost worker runs on the same worker now."""
        return any(
            flight.slot.id.worker == slot.worker and flight.of_lost_worker
            for flight in self._state.leases.values()
        )

    def _has_other_node(self, entry: Entry, slot: SlotId) -> bool:
        """Return whether it was on this node without success, and there is one where it was not."""
        nodes = {failed.node for failed in entry.failed_on}
        return slot.node in nodes and not self._nodes <= nodes
