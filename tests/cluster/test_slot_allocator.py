"""Which slots a cluster offers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskprs._cluster.slot_allocator import SlotAllocator, without_device
from daskprs._cluster.stage_hosts import MOST_AT_ONCE
from daskprs._cluster.worker_events import Heartbeat
from daskprs._core.agent_allocation import AgentAllocator
from daskprs._core.ledger_state import LedgerState
from daskprs._core.limits import Limits
from daskprs._core.stages import Stages

if TYPE_CHECKING:
    from collections.abc import Callable

    Dealt = Callable[..., dict[str, int]]


@pytest.fixture
def dealt(a_worker: Callable[..., Heartbeat]) -> Dealt:
    """Return a function that says how many slots each of some workers has."""

    def deal(nodes: SlotAllocator, **hosts: str) -> dict[str, int]:
        slots = nodes.slots({name: a_worker(name, host) for name, host in hosts.items()})
        return {name: sum(slot.worker == name for slot in slots) for name in hosts}

    return deal


def test_a_worker_offers_its_threads(dealt: Dealt) -> None:
    """Nobody has said how many processes a node shall have."""
    assert dealt(SlotAllocator(None, None), a="one", b="two") == {"a": 2, "b": 2}


def test_the_processes_of_a_node_are_dealt_out_evenly(dealt: Dealt) -> None:
    """Workers on one host share what their node may have."""
    nodes = SlotAllocator(None, 5)
    assert dealt(nodes, a="one", b="one", c="two") == {"a": 3, "b": 2, "c": 5}


def test_a_worker_that_joins_takes_nothing_away(dealt: Dealt) -> None:
    """The slots of those that were there have work in them."""
    nodes = SlotAllocator(None, 3)
    assert dealt(nodes, a="one") == {"a": 3}
    assert dealt(nodes, a="one", b="one") == {"a": 3, "b": 0}


def test_what_a_lost_worker_had_goes_to_those_that_live(dealt: Dealt) -> None:
    """A node has as many processes as it shall, as long as there is a worker on it."""
    nodes = SlotAllocator(None, 4)
    assert dealt(nodes, a="one", b="one") == {"a": 2, "b": 2}
    assert dealt(nodes, b="one", c="one") == {"b": 2, "c": 2}
    assert dealt(nodes, c="one") == {"c": 4}


def test_only_so_many_hosts_are_used(dealt: Dealt, a_worker: Callable[..., Heartbeat]) -> None:
    """They are numbered in the order in which they are seen first, for good."""
    nodes = SlotAllocator(1, None)
    assert dealt(nodes, a="one", b="two") == {"a": 2, "b": 0}
    offered = nodes.slots({"b": a_worker("b", "two"), "a": a_worker("a", "one")})
    assert {slot.node for slot in offered} == {0}


def test_a_host_that_comes_back_takes_nothing_from_the_one_in_its_place(dealt: Dealt) -> None:
    """Its worker was restarted; what the other one has begun meanwhile goes on."""
    nodes = SlotAllocator(1, None)
    assert dealt(nodes, a="one", b="two") == {"a": 2, "b": 0}
    assert dealt(nodes, b="two") == {"b": 2}
    assert dealt(nodes, c="one", b="two") == {"c": 0, "b": 2}
    assert dealt(nodes, c="one") == {"c": 2}


@pytest.mark.parametrize(
    ("devices", "processes"),
    [
        ((("0", "1"),), [1]),
        ((("0", "1"), ("0", "1")), [1, 0]),
        ((("0", "1"), ("1", "0")), [1, 1]),
        ((("GPU-a",), ()), [1, 0]),
    ],
    ids=["one worker", "workers that see the same", "workers with their own", "one without"],
)
def test_a_gpu_node_has_one_process_for_each_device_that_is_a_workers_own(
    a_worker: Callable[..., Heartbeat], devices: tuple[tuple[str, ...], ...], processes: list[int]
) -> None:
    """One, unless each worker was given its own, as dask-cuda does."""
    workers = {str(n): a_worker(str(n), devices=has) for n, has in enumerate(devices)}
    slots = SlotAllocator(None, None).slots(workers)
    assert [sum(slot.worker == name for slot in slots) for name in workers] == processes


@pytest.mark.parametrize(
    ("devices", "gpus", "processes"),
    [(("0", "1"), 1.0, [1, 1]), (("0",), 1.0, [1, 0]), (("0",), 0.5, [1, 0])],
    ids=["a card each", "one card for both", "half a card each"],
)
def test_workers_that_see_the_same_devices_have_a_process_for_each_that_they_declare(
    a_worker: Callable[..., Heartbeat], devices: tuple[str, ...], gpus: float, processes: list[int]
) -> None:
    """So are workers started without dask-cuda: the driver tells all of them of all cards."""
    workers = {name: a_worker(name, devices=devices, gpus=gpus) for name in "ab"}
    slots = SlotAllocator(None, None).slots(workers)
    assert [sum(slot.worker == name for slot in slots) for name in workers] == processes


@pytest.mark.parametrize(
    ("share", "gpus", "processes"),
    [(0.5, 0.5, [1, 1]), (0.5, 0.0, [1, 0]), (1, 1.0, [1, 0]), (2, 1.0, [1, 0])],
    ids=["halves", "halves, undeclared", "one card for both", "none for two"],
)
def test_a_gpu_node_has_no_more_processes_than_its_devices_serve(
    a_worker: Callable[..., Heartbeat], share: float, gpus: float, processes: list[int]
) -> None:
    """Unless the caller says so; but one at least."""
    workers = {name: a_worker(name, devices=("0",), gpus=gpus) for name in "ab"}
    slots = SlotAllocator(None, None, share).slots(workers)
    assert [sum(slot.worker == name for slot in slots) for name in workers] == processes


def test_processes_are_first_of_workers_that_declare_devices(
    a_worker: Callable[..., Heartbeat],
) -> None:
    """Those of a worker that sees the same ones would take them without asking Dask."""
    seen = {"devices": ("0", "1")}
    workers = {"a": a_worker("a", **seen), **{x: a_worker(x, gpus=1.0, **seen) for x in "bc"}}
    for processes, slots_of in ((None, "bc"), (1, "b"), (3, "abc")):
        slots = SlotAllocator(None, processes).slots(workers)
        assert [slot.worker for slot in slots] == [*slots_of]


@pytest.mark.parametrize(
    ("first", "later", "counts"),
    [
        (("0",), ("1",), [1, 1]),
        ((), ("0", "1"), [0, 2]),
        (None, None, [1, 1]),
        (("0", "1"), ("0", "1"), [2, 0]),
        (("0", "1"), ("1", "0"), [2, 0]),
    ],
    ids=["its own", "the only ones", "declared", "the same", "dask-cuda's"],
)
def test_a_worker_with_free_devices_gets_the_slots_for_which_others_have_none(
    a_worker: Callable[..., Heartbeat],
    first: tuple[str, ...] | None,
    later: tuple[str, ...] | None,
    counts: list[int],
) -> None:
    """The first to come had all, as after a restart of its host's workers."""
    nodes = SlotAllocator(None, 2)
    gpus = 1.0 if first is None else 0.0
    a, b = (
        a_worker(x, devices=has, gpus=gpus) for x, has in zip("ab", (first, later), strict=True)
    )
    assert len(nodes.slots({"a": a})) == 2
    slots = nodes.slots({"a": a, "b": b})
    assert [sum(slot.worker == name for slot in slots) for name in "ab"] == counts
    assert without_device(slots, 1.0) == {}


@pytest.mark.parametrize(
    ("names", "uuids", "devices", "processes"),
    [
        (("0", "GPU-x"), ("GPU-x", "GPU-x"), ("0", "0"), [1, 0]),
        (("0", "0"), ("GPU-x", "GPU-y"), ("0", "GPU-y"), [1, 1]),
        (("MIG-x", "MIG-y"), ("MIG-x", "MIG-y"), ("MIG-x", "MIG-y"), [1, 1]),
        (("0", "0"), ("GPU-x", "0"), ("0", "0"), [1, 0]),
    ],
    ids=["one card by two names", "two cards by one name", "instances", "one of them unknown"],
)
def test_workers_of_a_host_share_no_card_whatever_they_call_it(
    a_worker: Callable[..., Heartbeat],
    names: tuple[str, ...],
    uuids: tuple[str, ...],
    devices: tuple[str, ...],
    processes: list[int],
) -> None:
    """Each agent is told the name that its own worker has for the card."""
    workers = {
        str(n): a_worker(str(n), devices=(name,), uuids=(uuid,))
        for n, (name, uuid) in enumerate(zip(names, uuids, strict=True))
    }
    slots = SlotAllocator(None, None).slots(workers)
    assert [sum(slot.worker == name for slot in slots) for name in workers] == processes
    allocator = SlotAllocator(None, 2)
    for _ in range(2):  # the names stay
        slots = allocator.slots(workers)
        assert tuple(one.devices[0] for one in slots.values()) == devices
        seen = [(one.names or one.devices)[0] for one in slots.values()]
        assert seen == list(names)


CARDS = tuple(f"GPU-{number}" for number in range(4))
LAYOUTS: dict[str, list[dict[str, Any]]] = {
    "all see all": [{"devices": tuple("0123"), "uuids": CARDS} for _ in range(3)],
    "declared too": [{"devices": tuple("0123"), "uuids": CARDS, "gpus": 1.0} for _ in range(4)],
    "dask-cuda": [
        {
            "devices": tuple(str((first + n) % 4) for n in range(4)),
            "uuids": CARDS[first:] + CARDS[:first],
        }
        for first in range(4)
    ],
    "containers": [{"devices": ("0",), "uuids": (card,)} for card in CARDS],
    "one with more": [
        {"devices": ("0", "1", "2"), "uuids": CARDS[:3]},
        {"devices": ("GPU-3",), "uuids": CARDS[3:]},
    ],
    "beside a worker without": [{}, {"devices": ("0", "1"), "uuids": CARDS[:2]}],
}
"""The workers of a host."""


@given(
    st.sampled_from(sorted(LAYOUTS)),
    st.lists(st.integers(0, 3), min_size=1, max_size=6),
    st.sampled_from([0.3, 0.5, 1, 2]),
    st.sampled_from([None, 1, 2, 4, 8]),
)
def test_no_card_has_more_than_its_share_or_is_idle_while_a_process_lacks_one(
    layout: str, steps: list[int], share: float, processes: int | None
) -> None:
    """However workers come, and go again, each agent finds its cards by its worker's names."""
    nodes, state = (
        SlotAllocator(None, processes, share),
        LedgerState(Limits(gpus_per_process=share)),
    )
    agents, living = AgentAllocator(state), dict[str, Heartbeat]()
    for number, step in enumerate(steps):
        kind = step % len(LAYOUTS[layout])
        gone = [name for name in living if name.startswith(f"{kind} ")]
        for name in gone:
            del living[name]
        if not gone or not living:
            has = {"gpus": 0.0, "devices": (), **LAYOUTS[layout][kind]}
            name = f"{kind} {number}"
            living[name] = Heartbeat(name, name, "host", 2, 8, states={}, **has)
        slots = nodes.slots(living)
        for slot in state.slots.keys() - slots.keys():
            state.remove_slot(slot)
        for slot in slots.keys() - state.slots.keys():
            state.add_slot(slot, slots[slot])
        load, lacking = Counter[str](), 0
        for slot in sorted(slots, key=lambda slot: slot.number):
            record = state.slots[slot]
            agents.assignment(record)
            assert record.agent is not None
            worker = living[slot.worker]
            called = dict(zip(worker.devices or (), worker.uuids, strict=True))
            seen = record.agent.assignment.environment.get("CUDA_VISIBLE_DEVICES", "-1")
            cards = [called[name] for name in seen.split(",") if name != "-1"]
            load.update(cards)
            lacking += not cards
        each = max(1, int(1 / share))
        assert max(load.values(), default=0) <= each
        for worker in living.values() if lacking else ():
            assert sum(load[card] < each for card in worker.uuids) < share


@pytest.mark.parametrize("processes", [None, 2])
@pytest.mark.parametrize("gpus", [0.0, 1.0])
@pytest.mark.parametrize("is_later", [False, True])
def test_where_two_workers_have_a_card_another_card_is_not_idle(
    a_worker: Callable[..., Heartbeat],
    processes: int | None,
    gpus: float,
    *,
    is_later: bool,
) -> None:
    """Else both processes would be of the workers that have the first card."""
    names = {
        name: a_worker(name, devices=(card,), gpus=gpus)
        for name, card in zip("abcd", "0011", strict=True)
    }
    nodes = SlotAllocator(None, processes)
    for count in range(1, 5) if is_later else (4,):
        slots = nodes.slots({name: names[name] for name in "abcd"[:count]})
    assert [sum(slot.worker == name for slot in slots) for name in "abcd"] == [1, 0, 1, 0]
    assert without_device(slots, 1.0) == {}


def test_what_the_workers_of_a_host_declare_is_added_up(
    a_worker: Callable[..., Heartbeat],
) -> None:
    """Each has devices of its own, which no other one gets as long as it lives."""
    nodes = SlotAllocator(None, None)
    a, b, c = (a_worker(name, devices=None, gpus=1.0) for name in "abc")
    two = a_worker("two", devices=None, gpus=2.0)

    def devices(*workers: Heartbeat) -> dict[str, tuple[str, ...]]:
        offered = nodes.slots({worker.worker: worker for worker in workers})
        return {slot.worker: slot_resources.devices for slot, slot_resources in offered.items()}

    assert devices(a, b) == {"a": ("0",), "b": ("1",)}
    assert devices(b) == {"b": ("1",)}
    assert devices(b, two) == {"b": ("1",), "two": ("0", "2")}
    assert devices(c) == {"c": ("0",)}
    assert devices(a_worker("d", devices=None), a_worker("e", devices=("0",)), b) == {
        "e": ("0",),
        "b": ("1",),
    }


def test_workers_that_declare_parts_of_a_device_share_it(
    a_worker: Callable[..., Heartbeat],
) -> None:
    """Two halves are one; a half alone is none."""
    halves = [a_worker(name, devices=None, gpus=0.5) for name in "ab"]
    slots = SlotAllocator(None, 2, 0.5).slots({worker.worker: worker for worker in halves})
    assert [slot_resources.devices for slot_resources in slots.values()] == [("0",), ("0",)]
    slots = SlotAllocator(None, None).slots({"a": halves[0]})
    assert {slot_resources.devices for slot_resources in slots.values()} == {()}


def test_slots_are_kept_for_a_worker_that_is_about_to_come(
    a_worker: Callable[..., Heartbeat],
) -> None:
    """The first to come would have both, and one device; of another host nobody is awaited."""
    nodes = SlotAllocator(None, 2)
    a, b = (a_worker(name, devices=None, gpus=1.0) for name in "ab")
    assert [slot.worker for slot in nodes.slots({"a": a}, {"b": "one", "c": "two"})] == ["a"]
    slots = nodes.slots({"a": a, "b": b})
    assert [(slot.worker, slot_resources.devices) for slot, slot_resources in slots.items()] == [
        ("a", ("0",)),
        ("b", ("1",)),
    ]
    assert len(SlotAllocator(None, 2).slots({"a": a})) == 2


@pytest.mark.parametrize("processes", [None, 4])
def test_cores_are_kept_for_a_worker_that_is_about_to_come(
    a_worker: Callable[..., Heartbeat], processes: int | None
) -> None:
    """All agents of a host have the same share, whichever worker comes first."""
    nodes = SlotAllocator(None, processes)
    a, b = map(a_worker, "ab")
    first = nodes.slots({"a": a}, {"b": "one", "c": "two"})
    both = nodes.slots({"a": a, "b": b})
    assert [has.threads for has in first.values()] == [2, 2]
    assert [has.threads for has in both.values()] == [2, 2, 2, 2]


def test_slots_go_to_the_workers_that_have_devices(a_worker: Callable[..., Heartbeat]) -> None:
    """Before any process is left without one."""
    workers = {"a": a_worker("a", devices=("0", "1")), "b": a_worker("b", devices=())}
    slots = SlotAllocator(None, 2).slots(workers)
    assert [slot.worker for slot in slots] == ["a", "a"]


@pytest.mark.parametrize(
    ("share", "processes", "remark"),
    [
        (1, 2, ""),
        (1, 3, "node 0: 1 of 3 processes sees no GPU. The node has 2 GPUs, and"),
        (0.5, 4, ""),
        (2, 4, "node 0: 3 of 4 processes see no GPU. The node has 2 GPUs, and gpus_per_process=2."),
        (0, 4, ""),
    ],
)
def test_processes_without_a_device_are_counted(
    a_worker: Callable[..., Heartbeat], share: float, processes: int, remark: str
) -> None:
    """A node without any device needs no remark, and neither do devices that are hidden."""
    workers = {
        "a": a_worker("a", devices=("0", "1")),
        "b": a_worker("b", host="two", devices=()),
    }
    offered = SlotAllocator(None, processes, share).slots(workers)
    remarks = without_device(offered, share)
    assert list(remarks) == ([0] if remark else [])
    assert remarks.get(0, "").startswith(remark)


def test_agents_share_the_cores_of_their_node(a_worker: Callable[..., Heartbeat]) -> None:
    """Eight cores and three processes: two threads each; ten processes: one."""
    for processes, threads in ((3, 2), (10, 1), (1, 8)):
        slots = SlotAllocator(None, processes).slots({"a": a_worker("a"), "b": a_worker("b")})
        assert {has.threads for has in slots.values()} == {threads}


def stage_hosts(nodes: SlotAllocator, *workers: Heartbeat, awaited: str = "") -> dict[str, Any]:
    """Return the slots by worker, and number, with what runs `preprocess` for them elsewhere."""
    slots = nodes.slots({one.worker: one for one in workers}, {awaited: awaited} if awaited else {})
    return {
        f"{slot.worker}{slot.number}": [
            (one.worker, one.first, one.share) for one in has.stage_hosts
        ]
        for slot, has in slots.items()
    }


def test_nodes_without_a_gpu_preprocess_for_those_with_one(
    a_worker: Callable[..., Heartbeat],
) -> None:
    """They share out their threads among the slots, and one mini-batch of each may travel.

    Without `preprocess`, they have slots.
    """
    gpu = a_worker("g", "gpu", devices=("0", "1"))
    a, b, c = a_worker("a", "one", threads=3), a_worker("b", "one"), a_worker("c", "two")
    stages = Stages("decode", None, None)
    nodes = SlotAllocator(None, 2, 1.0, stages)
    assert stage_hosts(nodes, a, b, gpu, c) == {
        "g0": [("a", 0, 2 + 1), ("b", 3, 1 + 1), ("c", 0, 1 + 1)],
        "g1": [("a", 0, 1 + 1), ("b", 3, 1 + 1), ("c", 0, 1 + 1)],
    }
    nodes = SlotAllocator(2, 1, 1.0, stages._replace(processes=3))
    assert stage_hosts(nodes, a, b, c, gpu) == {"g0": [("a", 0, 2 + 1), ("b", 2, 1 + 1)]}
    for share, names in ((0.0, stages), (1.0, stages._replace(preprocess=None)), (1.0, None)):
        assert len(stage_hosts(SlotAllocator(None, 1, share, names), c, gpu)) == 2


def test_the_stage_processes_of_a_node_are_as_many_as_were_asked_for(
    a_worker: Callable[..., Heartbeat],
) -> None:
    """Also where it has fewer cores than processes of `run`, and several workers."""
    nodes = SlotAllocator(None, 3, 1.0, Stages("decode", None, 8))
    workers = {name: a_worker(name, cores=2) for name in "ab"}
    assert [one.stage_processes for one in nodes.slots(workers).values()] == [3, 3, 2]


def test_the_slots_of_a_node_may_all_wait_for_a_worker_that_comes(
    a_worker: Callable[..., Heartbeat],
) -> None:
    """The one that is there sees too few devices for a process."""
    nodes = SlotAllocator(None, 1, 2.0, Stages("decode", None, 8))
    assert nodes.slots({"a": a_worker("a", devices=("0",))}, {"b": "one"}) == {}


def test_a_worker_gives_no_more_to_others_than_it_has_connections_for(
    a_worker: Callable[..., Heartbeat],
) -> None:
    """However many its slots are."""
    gpu = a_worker("g", "gpu", devices=("0", "1"))
    cpus = [a_worker(f"c{n}", f"host {n}", threads=64) for n in range(20)]
    nodes = SlotAllocator(None, 2, 1.0, Stages("decode", None, None))
    shares = [one[2] for has in stage_hosts(nodes, gpu, *cpus).values() for one in has]
    assert sum(shares) == MOST_AT_ONCE
    assert min(shares) > 0


def test_a_node_has_no_slots_before_it_is_known_whether_another_has_a_gpu(
    a_worker: Callable[..., Heartbeat],
) -> None:
    """And none after the last GPU was lost, since that comes back; but if `run` needs none."""
    cpu, gpu = a_worker("c", "one"), a_worker("g", "two", devices=None, gpus=1.0)
    stages = Stages("decode", "rows", 1)
    nodes = SlotAllocator(None, 1, 1.0, stages)
    assert stage_hosts(nodes, cpu, awaited="two") == {}
    assert stage_hosts(nodes, cpu, awaited="one") == {"c0": []}
    assert stage_hosts(nodes, cpu, gpu) == {"g0": [("c", 0, 1 + 1)]}
    assert stage_hosts(nodes, cpu) == {}
    nodes.hide_gpus()
    assert stage_hosts(nodes, cpu, gpu) == {"c0": [], "g0": []}


def test_a_node_keeps_its_slots_when_it_shows_that_run_needs_no_gpu(
    a_worker: Callable[..., Heartbeat],
) -> None:
    """The only one that is used was chosen for its GPU; the other one had come first."""
    cpu, gpu = a_worker("c", "one"), a_worker("g", "two", devices=None, gpus=1.0)
    nodes = SlotAllocator(1, 1, 1.0, Stages("decode", None, 1))
    assert stage_hosts(nodes, cpu) == {"c0": []}
    for _ in range(2):
        assert stage_hosts(nodes, cpu, gpu) == {"g0": []}
        nodes.hide_gpus()
