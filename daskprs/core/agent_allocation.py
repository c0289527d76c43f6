"""The agent of each slot: the number of its process, its devices, its threads.

It is decided here, in the driver, and travels with the lease that needs a new agent. So several
workers on a host never take the same number or device, whether they share a disk or not.
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
"""What the names of processes begin with; a number follows."""


class _Agent(NamedTuple):
    assignment: AgentAssignment
    devices: tuple[str, ...]
    """What it was given; they are free when it has ended."""
    there: bool = False
    """It was heard of: until then the same post is given again, so that no number is left out."""
    leases: int = 0
    """Number of leases that carried this post."""


class AgentAllocator:
    """Gives each slot without an agent a post for one.

    Parameters
    ----------
    gpus_per_process
        How many devices an agent has: a whole number, or a part of one.
    first_process
        Returns the first free process number of a node: an earlier run of the job has used some.

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
        """Note what a slot has for its agents."""
        self._slot_resources[slot] = slot_resources

    def slot_lost(self, slot: SlotId) -> None:
        """Forget a slot, and its agent: its device is free."""
        del self._slot_resources[slot]
        self._agents.pop(slot, None)

    def hear(self, returned: LeaseReturned, slot: SlotId) -> None:
        """Note which agents came and went."""
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
        """Have a new agent with the next lease; the one that is there makes room."""
        self._agents.pop(slot, None)

    def withdraw(self, slot: SlotId) -> None:
        """Undo the post that a withdrawn lease carried: its number and its devices are free."""
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
        """Return the devices of a slot's agent, or those that its next one had now."""
        agent = self._agents.get(slot)
        return self._free(slot, ()) if agent is None else agent.devices

    def process(self, slot: SlotId) -> str:
        """Return the name of a slot's agent; empty where there is none."""
        agent = self._agents.get(slot)
        return "" if agent is None else agent.assignment.process

    def gpus(self, slot: SlotId) -> float:
        """Return how many devices, or which part of one, the agent of a slot has."""
        agent = self._agents.get(slot)
        return float(self._share) if agent is not None and agent.devices else 0.0

    def lacks(self, slot: SlotId, left_out: Collection[str]) -> bool:
        """Say whether an agent here would be without a device only because one is left out."""
        if slot in self._agents or not left_out:
            return False
        return bool(self._free(slot, ())) and not self._free(slot, left_out)

    def assignment(self, slot: SlotId, left_out: Collection[str] = ()) -> AgentAssignment | None:
        """Return the post of a new agent, if the slot needs one; the next process has the number.

        Parameters
        ----------
        slot
            Which is about to be given a lease.
        left_out
            Devices of its node that are not to be used.

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
        """Return the devices that an agent would get: those least used, in their own order."""
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
    """Return what an agent is told of devices; on a node without any, nothing."""
    if not slot_resources.devices:
        return {}
    return {
        DEVICES_VARIABLE: ",".join(devices) or HIDDEN,
        COUNT_VARIABLE: str(len(slot_resources.devices)),
    }
