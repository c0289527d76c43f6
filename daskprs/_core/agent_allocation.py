"""The agent of each slot: the number of its process, its devices, its threads.

The driver decides this here; it travels with the lease that needs a new agent. Several workers
on a host thus never take the same number or device, even when they share no disk.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from daskprs._core.lease import AgentAssignment, AgentExited, AgentStarted, InitFailed
from daskprs._core.ledger_state import AgentRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from daskprs._core.actions import SlotResources
    from daskprs._core.lease import LeaseReturned
    from daskprs._core.ledger_state import LedgerState, SlotRecord

DEVICES_VARIABLE = "CUDA_VISIBLE_DEVICES"
COUNT_VARIABLE = "AZ_BATCHAI_GPU_COUNT_FOUND"
HIDDEN = "-1"
"""No device; without the variable CUDA sees them all."""
FINEST = 10**12
"""Largest denominator of a share: coarser than a float, which is rounded."""
PROCESS = "process"
"""Prefix of process names; a number follows."""


class AgentAllocator:
    """Assigns a process number, devices and threads to the next agent of each slot.

    `first_process` returns the first process number of a node that no earlier run of the job has
    used. With `has_run`, the first process of each node may have run mini-batches of another
    ledger.
    """

    def __init__(
        self,
        state: LedgerState,
        first_process: Callable[[int], int] = lambda _: 0,
        *,
        has_run: bool = False,
    ) -> None:
        self._has_run = has_run
        self._state = state
        self._share = exact_share(state.limits.gpus_per_process)
        self._first_process = first_process
        self._next: dict[int, int] = {}
        self._unused: dict[int, set[int]] = {}
        """Process numbers of each node that no lease has used, below the next one."""

    def hide_gpus(self) -> None:
        """Give no devices to new agents."""
        self._share = Fraction(0)

    def record_events(self, returned: LeaseReturned, slot: SlotRecord) -> None:
        """Record the agents that started or ended during a lease."""
        for event in returned.agent_events:
            if slot.agent is None or event.process != slot.process:
                continue
            if isinstance(event, AgentStarted):
                slot.agent.started = True
            elif isinstance(event, AgentExited | InitFailed):
                slot.agent = None

    def withdraw(self, slot: SlotRecord) -> None:
        """Undo the assignment of a withdrawn lease: free its process number and its devices."""
        agent = slot.agent
        if agent is None or agent.started:
            return
        agent.leases -= 1
        if agent.leases == 0:  # else an earlier lease may have started this agent
            slot.agent = None
            number = int(agent.assignment.process.removeprefix(PROCESS))
            self._unused.setdefault(slot.id.node, set()).add(number)

    def devices(self, slot: SlotRecord) -> tuple[str, ...]:
        """Return the devices of a slot's agent, or those that a new agent would get now."""
        return self._free(slot, ()) if slot.agent is None else slot.agent.devices

    def gpus(self, slot: SlotRecord) -> float:
        """Return the number of devices, or the fraction of one, that a slot's agent has."""
        return float(self._share) if slot.agent and slot.agent.devices else 0.0

    def lacks(self, slot: SlotRecord, left_out: Collection[str]) -> bool:
        """Return whether a new agent lacks a device only because `left_out` excludes some."""
        if slot.agent is not None or not left_out:
            return False
        return bool(self._free(slot, ())) and not self._free(slot, left_out)

    def assignment(
        self, slot: SlotRecord, left_out: Collection[str] = ()
    ) -> AgentAssignment | None:
        """Return the assignment of a new agent; None if the slot has an agent that has started.

        `left_out` are devices of the slot's node that the agent must not use.
        """
        if slot.agent is None:
            devices = self._free(slot, left_out)
            process = self._claim(slot.id.node)
            has = slot.resources
            environment = _environment(devices, has)
            assignment = AgentAssignment(process, environment, has.threads, has.stage_processes)
            used = self._has_run and process == _name(self._first_process(slot.id.node))
            slot.agent = AgentRecord(assignment, devices, attempts=int(used), calls=int(used))
        if slot.agent.started:
            return None
        slot.agent.leases += 1
        return slot.agent.assignment

    def _claim(self, node: int) -> str:
        unused = self._unused.get(node)
        if unused:
            number = min(unused)
            unused.remove(number)
        else:
            number = self._next[node] if node in self._next else self._first_process(node)
            self._next[node] = number + 1
        return _name(number)

    def _free(self, slot: SlotRecord, left_out: Collection[str]) -> tuple[str, ...]:
        """Return the devices that a new agent would get: the least used ones first."""
        count = -(-self._share.numerator // self._share.denominator)
        each = min(Fraction(1), self._share)
        used: dict[str, Fraction] = {}
        for other in self._state.slots.values():
            if other.agent is not None and other.id.node == slot.id.node:
                for device in other.agent.devices:
                    used[device] = used.get(device, Fraction(0)) + each
        room = [
            device
            for device in slot.resources.devices
            if used.get(device, 0) + each <= 1 and device not in left_out
        ]
        room.sort(key=lambda device: used.get(device, 0))
        return tuple(room[:count]) if len(room) >= count else ()


def exact_share(gpus_per_process: float) -> Fraction:
    """Return the devices of a process as the user means them: eleven times 1/11 is one device."""
    given = Fraction(gpus_per_process)
    return given.limit_denominator(FINEST) or given


def served_processes(devices: int, gpus_per_process: float) -> int:
    """Return how many processes some devices serve: none gets parts of two devices."""
    share = exact_share(gpus_per_process)
    return int(devices / share) if share > 1 else devices * int(1 / share)


def _name(number: int) -> str:
    return f"{PROCESS}{number:03d}"


def _environment(devices: tuple[str, ...], resources: SlotResources) -> dict[str, str]:
    """Return the device variables of an agent; empty on a node without devices."""
    if not resources.devices:
        return {}
    names = dict(zip(resources.devices, resources.names, strict=False))
    return {
        DEVICES_VARIABLE: ",".join(names.get(one, one) for one in devices) or HIDDEN,
        COUNT_VARIABLE: str(len(resources.devices)),
    }
