"""The slots that a cluster offers: each host is a node, whose workers share its slots."""

from __future__ import annotations

from collections import defaultdict
from itertools import count, islice
from math import inf
from typing import TYPE_CHECKING

from daskprs._cluster.stage_hosts import StageHosts
from daskprs._core.actions import SlotId, SlotResources
from daskprs._core.agent_allocation import AgentAllocator, exact_share, served_processes
from daskprs._core.ledger_state import LedgerState
from daskprs._core.limits import Limits
from daskprs._report.humanize import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from daskprs._cluster.worker_events import Heartbeat
    from daskprs._core.stages import Stages


class SlotAllocator:
    """Numbers the hosts of a cluster 0, 1, … in the order of their first appearance.

    A worker keeps its slots while it lives, since taking away a slot would end its agent and
    perhaps an hour of work. A worker that joins the host later gets the remaining slots, and those
    for which it has devices and the others have none. The slots of a lost worker go to the living
    ones. For the same reason, a host in use is not replaced by one that comes back.

    With `node_count` None, all hosts are used. With `processes_per_node` None, a host has the
    threads that its workers declare as slots, and a GPU node has 1. Nodes without a device run
    `preprocess`, one of the `stages`, for those that have one.
    """

    def __init__(
        self,
        node_count: int | None,
        processes_per_node: int | None,
        gpus_per_process: float = 1.0,
        stages: Stages | None = None,
    ) -> None:
        self._node_count = node_count
        self._processes_per_node = processes_per_node
        self._gpus_per_process = gpus_per_process
        self._stages = stages
        self._stage_hosts = StageHosts(stages if gpus_per_process else None)
        self._numbers: dict[str, int] = {}
        self._dealt: dict[str, int] = {}
        """Number of slots of each living worker."""
        self._numbered: dict[str, tuple[str, ...]] = {}
        """Device numbers given to living workers that only declare a number of devices."""
        self._cards: dict[tuple[str, str], str] = {}
        """The name of each device of a host, by its UUID."""

    def hide_gpus(self) -> None:
        """Count the threads of workers as their slots, whatever devices they have."""
        self._gpus_per_process = 0.0
        self._stage_hosts.hide_gpus()

    def slots(
        self, workers: Mapping[str, Heartbeat], awaited: Mapping[str, str] | None = None
    ) -> dict[SlotId, SlotResources]:
        """Return the slots of these workers, node by node, with their agents' devices and threads.

        `awaited` has the addresses and hosts of workers that will come soon: their share of the
        slots is kept.
        """
        hosts: dict[int, list[str]] = {}
        for address, worker in workers.items():
            node = self._numbers.setdefault(worker.host, len(self._numbers))
            hosts.setdefault(node, []).append(address)
        self._dealt = {worker: self._dealt[worker] for worker in workers if worker in self._dealt}
        self._numbered = {at: has for at, has in self._numbered.items() if at in workers}
        idle = [node for node, has in hosts.items() if self._dealt.keys().isdisjoint(has)]
        on_nodes = {node: [workers[address] for address in has] for node, has in hosts.items()}
        helping = self._stage_hosts.without_run(on_nodes, (awaited or {}).values())
        order = sorted(hosts, key=lambda node: (node in helping, node in idle, node))
        used = sorted(order[: self._node_count])
        offered: dict[SlotId, SlotResources] = {}
        for node in (one for one in used if one not in helping):
            here = self._with_devices(on_nodes[node])
            host = here[0].host
            coming = [one for one, where in (awaited or {}).items() if where == host]
            self._deal(here, coming)
            called = {at: workers[at].devices or () for at in hosts[node]}
            offered |= self._of_node(node, here, len(coming), called)
        for node in hosts.keys() - {slot.node for slot in offered}:
            for address in hosts[node]:
                self._dealt.pop(address, None)
        helpers = {node: on_nodes[node] for node in used if node in helping}
        return self._stage_hosts.shared(offered, helpers) if helpers else offered

    def _with_devices(self, workers: list[Heartbeat]) -> list[Heartbeat]:
        """Return the workers of a node, with names for devices that are only declared by number.

        Each worker gets numbers of its own, which it keeps while it lives. Workers that declare
        fractions of a device share as many devices as the fractions add up to.
        """
        unnamed = [worker for worker in workers if worker.devices is None]
        shared = range(int(sum(worker.gpus for worker in unnamed)))
        if not all(worker.gpus.is_integer() for worker in unnamed):
            for worker in unnamed:
                self._numbered[worker.worker] = tuple(map(str, shared))
        taken = {device for worker in workers for device in self._names(worker)}
        for worker in unnamed:
            if worker.worker not in self._numbered:
                free = (str(number) for number in count() if str(number) not in taken)
                self._numbered[worker.worker] = tuple(islice(free, int(worker.gpus)))
                taken.update(self._numbered[worker.worker])
        return [worker._replace(devices=self._one_name_each(worker)) for worker in workers]

    def _one_name_each(self, worker: Heartbeat) -> tuple[str, ...]:
        """Return the devices of a worker by names that all workers of the host have for them.

        That is the name of the worker that was seen first, or the UUID where this name is that of
        another device.
        """
        names = self._names(worker)
        if worker.devices is None or len(worker.uuids) != len(names):
            return names
        for name, uuid in zip(names, worker.uuids, strict=True):
            here = {one for (host, _), one in self._cards.items() if host == worker.host}
            self._cards.setdefault((worker.host, uuid), uuid if name in here else name)
        return tuple(self._cards[worker.host, uuid] for uuid in worker.uuids)

    def _names(self, worker: Heartbeat) -> tuple[str, ...]:
        if worker.devices is not None:
            return worker.devices
        return self._numbered.get(worker.worker, ())

    def _deal(self, workers: list[Heartbeat], awaited: Iterable[str]) -> None:
        """Deal out the slots that the workers of a node lack.

        Each slot goes to the worker with the fewest slots; workers with a free device come first.
        """
        processes = self._processes_per_node or self._of_gpus(workers)
        for worker in workers:
            least = worker.threads if processes is None else 0
            self._dealt[worker.worker] = max(self._dealt.get(worker.worker, 0), least)
        if processes is not None:
            served = self._served(workers)
            if served:
                self._take_back(workers, served, processes)
            dealt = {worker.worker: self._dealt[worker.worker] for worker in workers}
            # Else the worker that comes first takes all slots of its host, and its agents wait for
            # its one device while the devices of the other workers are idle.
            dealt |= dict.fromkeys(awaited, 0)
            for _ in range(processes - sum(dealt.values())):
                left = self._left(workers, served, dealt) if served else {}
                next_one = min(
                    dealt,
                    key=lambda at: (
                        dealt[at] >= served.get(at, inf),
                        left.get(at, inf) <= 0,
                        dealt[at],
                    ),
                )
                dealt[next_one] += 1
            self._dealt |= {worker.worker: dealt[worker.worker] for worker in workers}

    def _take_back(
        self, workers: list[Heartbeat], served: Mapping[str, int], processes: int
    ) -> None:
        """Take slots from workers that have no device for them, for others that came later."""
        dealt = {at: self._dealt[at] for at in served}
        used = {at: min(dealt[at], most) for at, most in served.items()}
        room = self._served_by(_seen(workers)) - sum(used.values())
        lacking = min(room, sum(served.values()) - sum(used.values()))
        if lacking > 0:
            lacking += max(0, sum(dealt.values()) - processes)
            for at in served:
                taken = min(lacking, dealt[at] - used[at])
                self._dealt[at] -= taken
                lacking -= taken

    def _left(
        self, workers: list[Heartbeat], served: Mapping[str, int], dealt: Mapping[str, int]
    ) -> dict[str, int]:
        """Return how many more agents the devices of each worker serve.

        Agents of several workers that see the same devices use them in the workers' order.
        """
        used = dict.fromkeys(served, 0)

        def left(one: Heartbeat) -> int:
            devices = {*(one.devices or ())}
            near = (two for two in workers if not devices.isdisjoint(two.devices or ()))
            return self._served_by(devices) - sum(used[two.worker] for two in near)

        for one in workers:
            used[one.worker] = max(0, min(dealt[one.worker], served[one.worker], left(one)))
        return {one.worker: left(one) for one in workers}

    def _served(self, workers: list[Heartbeat]) -> dict[str, int]:
        """Return the number of agents that each worker of a GPU node has devices for.

        A worker that declares devices serves as many agents as it declares. What it sees is not
        for workers that declare none: their agents would use it without asking Dask.
        """
        if self._gpus_per_process == 0 or not _seen(workers):
            return {}
        declared = _seen(worker for worker in workers if worker.gpus)
        served = {}
        for one in workers:
            if one.gpus:
                each = exact_share(min(one.gpus, self._gpus_per_process))
                most = int(exact_share(one.gpus) / each)
                served[one.worker] = min(most, self._served_by(one.devices or ()))
            else:
                served[one.worker] = self._served_by({*(one.devices or ())} - declared)
        return served

    def _served_by(self, devices: Collection[str]) -> int:
        return served_processes(len(devices), self._gpus_per_process)

    def _of_gpus(self, workers: list[Heartbeat]) -> int | None:
        """Return how many processes a GPU node has: 1; None for a node without GPUs.

        Where workers have devices of their own, as with dask-cuda's one worker for each GPU, or
        declare some of those that they all see, the node has one process for each such worker, as
        far as there are devices for it.
        """
        seen = _seen(workers)
        if self._gpus_per_process == 0 or not seen:
            return None
        own = {worker.devices[0] for worker in workers if worker.devices}
        declaring = sum(worker.gpus > 0 for worker in workers)
        return max(1, min(max(len(own), declaring), self._served_by(seen)))

    def _of_node(
        self,
        node: int,
        workers: list[Heartbeat],
        coming: int,
        called: Mapping[str, tuple[str, ...]],
    ) -> dict[SlotId, SlotResources]:
        """Return the slots of a node, where more workers will come soon, like those here.

        `called` has the names that each worker has for its devices.
        """
        slots = [
            (worker, number) for worker in workers for number in range(self._dealt[worker.worker])
        ]
        cores = max(worker.cores for worker in workers)
        # Else the agents of the worker that comes first use all cores of the host, and later ones
        # their share only. All slots may be kept for workers that come.
        expected = max(1, len(slots) * (len(workers) + coming) // len(workers))
        threads = max(1, cores // expected)
        beside = [0] * len(slots)
        if self._stages is not None:
            beside = self._stages.processes_beside(threads, expected)
        return {
            SlotId(worker.worker, number, node): SlotResources(
                worker.devices or (),
                threads,
                () if called[worker.worker] == worker.devices else called[worker.worker],
                stage_processes=processes,
            )
            for (worker, number), processes in zip(slots, beside, strict=False)
        }


def _seen(workers: Iterable[Heartbeat]) -> set[str]:
    """Return the devices that any of these workers sees."""
    return {device for worker in workers for device in worker.devices or ()}


def without_device(
    offered: Mapping[SlotId, SlotResources], gpus_per_process: float
) -> dict[int, str]:
    """Return a sentence for each GPU node with more processes than its devices serve."""
    if gpus_per_process == 0:
        return {}
    state = LedgerState(Limits(gpus_per_process=gpus_per_process))
    allocator = AgentAllocator(state)
    devices: defaultdict[int, set[str]] = defaultdict(set)
    seeing: defaultdict[int, list[bool]] = defaultdict(list)
    for slot, resources in offered.items():
        state.add_slot(slot, resources)
        devices[slot.node].update(resources.devices)
    for record in state.slots.values():
        if devices[record.id.node]:
            allocator.assignment(record)
            seeing[record.id.node].append(bool(allocator.devices(record)))
    return {
        node: _without(node, len(sees), sees.count(False), len(devices[node]), gpus_per_process)
        for node, sees in seeing.items()
        if not all(sees)
    }


def _without(node: int, processes: int, blind: int, devices: int, share: float) -> str:
    return (
        f"node {node}: {blind} of {counted(processes, 'process')} "
        f"{'see' if blind > 1 else 'sees'} no GPU. The node has {counted(devices, 'GPU')}, and "
        f"gpus_per_process={share:g}. Lower process_count_per_node or gpus_per_process if each "
        "process needs a GPU."
    )
