"""Numbers and devices of agents."""

from __future__ import annotations

from typing import Any

import pytest

from daskprs._core.actions import SlotId, SlotResources
from daskprs._core.agent_allocation import AgentAllocator, served_processes
from daskprs._core.lease import AgentExited, AgentStarted, LeaseReturned
from daskprs._core.ledger_state import LedgerState, SlotRecord
from daskprs._core.limits import Limits

DEVICES = ("0", "1")


class Office:
    """A staff, and what comes back of its agents."""

    def __init__(
        self, share: float = 1, *devices: tuple[str, ...], slots: int = 4, node: int = 0
    ) -> None:
        self.state = LedgerState(Limits(gpus_per_process=share))
        self.allocator = AgentAllocator(self.state)
        for worker, has in enumerate(devices or (DEVICES,)):
            for number in range(slots):
                self.state.add_slot(SlotId(f"worker {worker}", number, node), SlotResources(has, 1))
        self.slots = list(self.state.slots.values())

    def start(self, slot: SlotRecord) -> tuple[str, str]:
        """Start an agent; return its name and what it sees."""
        assignment = self.allocator.assignment(slot)
        assert assignment is not None
        self.tell(slot, AgentStarted(assignment.process, 1))
        return assignment.process, assignment.environment["CUDA_VISIBLE_DEVICES"]

    def end(self, slot: SlotRecord, process: str) -> None:
        """Let an agent end."""
        self.tell(slot, AgentExited(process, 0, "stopped", expected=True))

    def tell(self, slot: SlotRecord, *events: Any) -> None:
        """Let a lease come back."""
        self.allocator.record_events(LeaseReturned(1, "", agent_events=events), slot)


def test_the_next_started_process_takes_the_device_that_one_has_left() -> None:
    """Two devices and four processes, as the contract has it."""
    office = Office()
    started = [office.start(slot) for slot in office.slots]
    assert started == [
        ("process000", "0"),
        ("process001", "1"),
        ("process002", "-1"),
        ("process003", "-1"),
    ]
    office.end(office.slots[2], "process002")
    office.end(office.slots[0], "process000")
    assert office.start(office.slots[2]) == ("process004", "0")
    assert office.start(office.slots[0]) == ("process005", "-1")


def test_several_workers_on_a_host_never_get_the_same_device() -> None:
    """Whether all see all devices, or each its own first, as dask-cuda has it."""
    for seen in ((DEVICES, DEVICES), (DEVICES, DEVICES[::-1])):
        office = Office(1, *seen, slots=1)
        assert [office.start(slot)[1] for slot in office.slots] == ["0", "1"]
    office = Office(1, DEVICES[::-1], DEVICES, slots=1)
    assert [office.start(slot)[1] for slot in office.slots] == ["1", "0"]


@pytest.mark.parametrize(
    ("share", "seen"),
    [
        (0.5, ["0", "1", "0", "1", "-1"]),
        (0.1, ["0", "1", "0", "1", "0"]),
        (0.6, ["0", "1", "-1", "-1", "-1"]),
        (2, ["0,1", "-1", "-1", "-1", "-1"]),
        (3, ["-1", "-1", "-1", "-1", "-1"]),
        (0, ["-1", "-1", "-1", "-1", "-1"]),
    ],
)
def test_a_device_is_shared_by_as_many_as_fit(share: float, seen: list[str]) -> None:
    """Five processes on two devices; who has none is shown none."""
    office = Office(share, slots=5)
    assert [office.start(slot)[1] for slot in office.slots] == seen
    asked = [0.0 if devices == "-1" else float(share) for devices in seen]
    assert [office.allocator.gpus(slot) for slot in office.slots] == asked


@pytest.mark.parametrize("count", [3, 7, 11, 13, 15, 49])
def test_a_device_is_shared_by_as_many_as_the_caller_divides_it_by(count: int) -> None:
    """A float is rounded: written out, eleven times 1/11 is more than 1."""
    office = Office(1 / count, ("0",), slots=count + 1)
    assert [office.start(slot)[1] for slot in office.slots] == ["0"] * count + ["-1"]
    assert served_processes(2, 1 / count) == 2 * count


def test_no_process_gets_parts_of_two_devices() -> None:
    """Nor fewer devices than it shall have."""
    assert [served_processes(3, share) for share in (0.3, 0.7, 1, 2, 4)] == [9, 3, 3, 1, 0]
    assert served_processes(1, 1e-15) > 10**14


def test_names_of_devices_are_passed_on_as_they_are() -> None:
    """UUIDs and MIG instances too."""
    office = Office(1, ("GPU-8f1c", "MIG-GPU-2/1/0"), slots=2)
    assert [office.start(slot)[1] for slot in office.slots] == ["GPU-8f1c", "MIG-GPU-2/1/0"]


def test_an_agent_is_told_the_name_that_its_worker_has_for_a_device() -> None:
    """Workers of a node may have several names for one card, and one name for several."""
    state = LedgerState(Limits())
    allocator = AgentAllocator(state)
    for worker, resources in enumerate(
        (SlotResources(("0",)), SlotResources(("0", "GPU-y"), names=("GPU-x", "0")))
    ):
        state.add_slot(SlotId(f"worker {worker}", 0, 0), resources)
    told = [allocator.assignment(slot) for slot in state.slots.values()]
    assert [one.environment["CUDA_VISIBLE_DEVICES"] for one in told if one] == ["0", "0"]
    assert [allocator.devices(slot) for slot in state.slots.values()] == [("0",), ("GPU-y",)]


def test_where_there_is_no_device_nothing_is_said_of_any() -> None:
    """A CPU node."""
    state = LedgerState(Limits())
    allocator = AgentAllocator(state)
    state.add_slot(SlotId("worker", 0, 0), SlotResources((), 3))
    (slot,) = state.slots.values()
    assignment = allocator.assignment(slot)
    assert assignment is not None
    assert assignment.environment == {}
    assert assignment.threads == 3
    assert allocator.gpus(slot) == 0.0


def test_no_number_is_left_out_where_an_agent_could_not_be_had() -> None:
    """The post is given again until somebody holds it, and then no more."""
    office = Office()
    slot = office.slots[0]
    assert office.allocator.assignment(slot) == office.allocator.assignment(slot)
    assert office.start(slot)[0] == "process000"
    assert office.allocator.assignment(slot) is None
    assert office.start(office.slots[1])[0] == "process001"


def test_numbers_are_of_their_node_and_go_on_after_an_earlier_run() -> None:
    """Node 3 has had two processes before."""
    state = LedgerState(Limits())
    allocator = AgentAllocator(state, {3: 2}.get)  # type: ignore[arg-type]
    for number in range(2):
        state.add_slot(SlotId("worker", number, 3), SlotResources())
    for number, slot in enumerate(state.slots.values()):
        assignment = allocator.assignment(slot)
        assert assignment is not None
        assert assignment.process == f"process{2 + number:03d}"


def test_the_device_of_a_lost_worker_is_free() -> None:
    """Another worker of the host takes it."""
    office = Office(1, ("0",), ("0",), slots=1)
    first, second = office.slots
    assert office.start(first)[1] == "0"
    office.state.remove_slot(first.id)
    assert office.start(second)[1] == "0"
