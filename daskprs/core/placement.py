"""The slots that get work: none on a node without agents, or where everything fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs.core.lease import AgentExited
from daskprs.core.quarantine import Device, Node, Process, Quarantine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from daskprs.core.actions import SlotId
    from daskprs.core.agent_allocation import AgentAllocator
    from daskprs.core.lease import AgentAssignment, LeaseReturned
    from daskprs.core.quarantine import Place
    from daskprs.core.startup_failures import StartupFailures


class Placement:
    """Knows which slots may get work, from the history of their agents."""

    def __init__(self, init: StartupFailures, allocator: AgentAllocator) -> None:
        self.bad = Quarantine()
        self._init = init
        self._allocator = allocator

    def places(self, slot: SlotId, process: str) -> tuple[Place, ...]:
        """Return the places of an agent: itself, its devices, its node."""
        devices = (Device(slot.node, device) for device in self._allocator.devices(slot))
        return Process(slot.node, process), *devices, Node(slot.node)

    def of(self, slots: Iterable[SlotId]) -> list[SlotId]:
        """Return the slots that may get work; all with agents, if quarantine would leave none."""
        staffed = [slot for slot in slots if not self._init.is_out(slot)]
        if not self.bad.any:
            return staffed
        return [slot for slot in staffed if self.is_good(slot)] or staffed

    def is_good(self, slot: SlotId) -> bool:
        """Return whether a slot's node may have agents, and no quarantine affects the slot."""
        out, node = self.bad, slot.node
        if self._init.is_out(slot):
            return False
        return not (out.is_out([Node(node)]) or self._allocator.lacks(slot, out.devices(node)))

    def assignment(self, slot: SlotId) -> AgentAssignment | None:
        """Return the assignment of a new agent, if the slot needs one, without bad devices."""
        out = self.bad.devices(slot.node) if self.is_good(slot) else ()
        return self._allocator.assignment(slot, out)

    def on_trial(self, free: Iterable[SlotId], now_s: float) -> SlotId | None:
        """Return a free slot on a place whose next trial is due; None without one."""
        for place in self.bad.to_try(now_s):
            for slot in free:
                if slot.node == place.node and not self._init.is_out(slot):
                    trial = isinstance(place, Node) or self._lacks_just(slot, place)
                    if trial:
                        self.bad.tried(place, now_s)
                        return slot
        return None

    def _lacks_just(self, slot: SlotId, place: Place) -> bool:
        return isinstance(place, Device) and self._allocator.lacks(slot, {place.device})

    def hear(self, returned: LeaseReturned, slot: SlotId) -> None:
        """Forget the failures of agents that have ended."""
        for event in returned.agent_events:
            if isinstance(event, AgentExited):
                self.bad.forget(Process(slot.node, event.process))

    def dismiss(self, bad: Iterable[Place], slots: Iterable[SlotId]) -> None:
        """Replace the agents that are bad or use a bad device."""
        gone = set(bad)
        for slot in slots if gone else ():
            process = self._allocator.process(slot)
            if process and not gone.isdisjoint(self.places(slot, process)[:-1]):
                self._allocator.dismiss(slot)
