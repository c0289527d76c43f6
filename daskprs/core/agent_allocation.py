"""The agent of each slot: the number of its process, its devices, its threads.

The driver decides this here; it travels with the lease that needs a new agent. Several workers
on a host thus never take the same number or device, even when they share no disk.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from daskprs.core.lease import AgentAssignment, AgentExited, AgentStarted, InitFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from daskprs.core.actions import SlotId, SlotResources
    from daskprs.core.lease import LeaseReturned

DEVICES_VARIABLE = "CUDA_VISIBLE_DEVICES"
COUNT_VARIABLE = "AZ_BATCHAI_GPU_COUNT_FOUND"
HIDDEN = "-1"
"""No device; without the variable CUDA sees them all."""
PROCESS = "process"
"""Prefix of process names; a number follows."""


class _Agent(NamedTuple):
    assignment: AgentAssignment
    devices: tuple[str, ...]
    """The devices assigned to the agent; they are free once it has ended."""
    there: bool = False
    """Whether the agent has started; until then the slot's leases carry the same assignment."""
    leases: int = 0
    """Number of leases that carried this assignment."""


class AgentAllocator:
    """Assigns a process number, devices and threads to the next agent of each slot.

    Parameters
    ----------
    gpus_per_process
        Number of devices of an agent: a whole number, or a fraction of one device.
    first_process
        Returns the first process number of a node that no earlier run of the job has used.

    """

    def __init__(self, gpus_per_process: float, first_process: Callable[[int], int]) -> None:
        self._share = Fraction(str(gpus_per_process))
        self._first_process = first_process
        self._next: dict[int, int] = {}
        self._unused: dict[int, set[int]] = {}
        """Process numbers of each node that no lease has used, below the next one."""
        self._slot_resources: dict[SlotId, SlotResources] = {}
        self._agents: dict[SlotId, _Agent] = {}

    def slot_added(self, slot: SlotId, slot_resources: SlotResources) -> None:
        """Record the devices and threads of a slot."""
        self._slot_resources[slot] = slot_resources

    def slot_lost(self, slot: SlotId) -> None:
        """Forget a slot and its agent, and free the agent's devices."""
        del self._slot_resources[slot]
        self._agents.pop(slot, None)

    def hear(self, returned: LeaseReturned, slot: SlotId) -> None:
        """Record the agents that started or ended during a lease."""
        for event in returned.agent_events:
            agent = self._agents.get(slot)
            match event:
                case AgentStarted(process=process) if agent and agent.assignment.process == process:
                    self._agents[slot] = agent._replace(there=True)
                case AgentExited() | InitFailed() if (
                    agent and agent.assignment.process == event.process
                ):
                    del self._agents[slot]

    def dismiss(self, slot: SlotId) -> None:
        """Replace the agent of a slot with the next lease."""
        self._agents.pop(slot, None)

    def withdraw(self, slot: SlotId) -> None:
        """Undo the assignment of a withdrawn lease: free its process number and its devices."""
        agent = self._agents.get(slot)
        if agent is None or agent.there:
            return
        if agent.leases > 1:  # an earlier lease may have started this agent
            self._agents[slot] = agent._replace(leases=agent.leases - 1)
            return
        del self._agents[slot]
        number = int(agent.assignment.process.removeprefix(PROCESS))
        self._unused.setdefault(slot.node, set()).add(number)

    def devices(self, slot: SlotId) -> tuple[str, ...]:
        """Return the devices of a slot's agent, or those that a new agent would get now."""
        agent = self._agents.get(slot)
        return self._free(slot, ()) if agent is None else agent.devices

    def process(self, slot: SlotId) -> str:
        """Return the process name of a slot's agent; empty for a slot without an agent."""
        agent = self._agents.get(slot)
        return "" if agent is None else agent.assignment.process

    def gpus(self, slot: SlotId) -> float:
        """Return the number of devices, or the fraction of one, that a slot's agent has."""
        agent = self._agents.get(slot)
        return float(self._share) if agent is not None and agent.devices else 0.0

    def lacks(self, slot: SlotId, left_out: Collection[str]) -> bool:
        """Return whether a new agent lacks a device only because `left_out` excludes some."""
        if slot in self._agents or not left_out:
            return False
        return bool(self._free(slot, ())) and not self._free(slot, left_out)

    def assignment(self, slot: SlotId, left_out: Collection[str] = ()) -> AgentAssignment | None:
        """Return the assignment of a new agent; None if the slot has an agent that has started.

        Parameters
        ----------
        slot
            The slot that the next lease goes to.
        left_out
            Devices of the slot's node that the agent must not use.

        """
        agent = self._agents.get(slot)
        if agent is None:
            devices = self._free(slot, left_out)
            slot_resources = self._slot_resources[slot]
            assignment = AgentAssignment(
                self._claim(slot.node),
                _environment(devices, slot_resources),
                slot_resources.threads,
            )
            agent = _Agent(assignment, devices)
        if agent.there:
            return None
        self._agents[slot] = agent._replace(leases=agent.leases + 1)
        return agent.assignment

    def _claim(self, node: int) -> str:
        unused = self._unused.get(node)
        if unused:
            number = min(unused)
            unused.remove(number)
        else:
            number = self._next[node] if node in self._next else self._first_process(node)
            self._next[node] = number + 1
        return f"{PROCESS}{number:03d}"

    def _free(self, slot: SlotId, left_out: Collection[str]) -> tuple[str, ...]:
        """Return the devices that a new agent would get: the least used ones first."""
        count = -(-self._share.numerator // self._share.denominator)
        each = min(Fraction(1), self._share)
        used: dict[str, Fraction] = {}
        for other, agent in self._agents.items():
            if other.node == slot.node:
                for device in agent.devices:
                    used[device] = used.get(device, Fraction(0)) + each
        room = [
            device
            for device in self._slot_resources[slot].devices
            if used.get(device, 0) + each <= 1 and device not in left_out
        ]
        room.sort(key=lambda device: used.get(device, 0))
        return tuple(room[:count]) if len(room) >= count else ()


def _environment(devices: tuple[str, ...], slot_resources: SlotResources) -> dict[str, str]:
    """Return the device variables of an agent; empty on a node without devices."""
    if not slot_resources.devices:
        return {}
    return {
        DEVICES_VARIABLE: ",".join(devices) or HIDDEN,
        COUNT_VARIABLE: str(len(slot_resources.devices)),
    }
