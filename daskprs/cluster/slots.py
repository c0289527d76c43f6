"""Which slots a cluster offers: its hosts are nodes, and each worker has some of their slots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs.core.actions import Equipment, SlotId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daskprs.cluster.news import WorkerTold


class Nodes:
    """Numbers the hosts of a cluster 0, 1, … in the order in which they are seen first.

    A worker keeps the slots that it was given as long as it lives, since a slot that is taken away
    has an agent in it, and perhaps an hour of work: one that joins its host later gets what is
    left, and what a lost one had goes to those that live. For the same reason no host that is used
    makes room for one that comes back.

    Parameters
    ----------
    node_count
        How many hosts are used; None: all.
    processes_per_node
        How many slots a host has; None: the threads that its workers declare, on a GPU node 1.
    gpus_per_process
        How many devices an agent has.

    """

    def __init__(
        self,
        node_count: int | None,
        processes_per_node: int | None,
        gpus_per_process: float = 1.0,
    ) -> None:
        self._node_count = node_count
        self._processes_per_node = processes_per_node
        self._gpus_per_process = gpus_per_process
        self._numbers: dict[str, int] = {}
        self._dealt: dict[str, int] = {}
        """How many slots each living worker has."""

    def slots(self, workers: Mapping[str, WorkerTold]) -> dict[SlotId, Equipment]:
        """Return the slots of these workers, node by node, and what their agents have."""
        hosts: dict[int, list[str]] = {}
        for address, worker in workers.items():
            node = self._numbers.setdefault(worker.host, len(self._numbers))
            hosts.setdefault(node, []).append(address)
        self._dealt = {worker: self._dealt[worker] for worker in workers if worker in self._dealt}
        idle = [node for node, has in hosts.items() if self._dealt.keys().isdisjoint(has)]
        used = sorted(hosts, key=lambda node: (node in idle, node))[: self._node_count]
        offered: dict[SlotId, Equipment] = {}
        for node in sorted(used):
            self._deal([workers[address] for address in hosts[node]])
            offered |= self._of_node(node, [workers[address] for address in hosts[node]])
        return offered

    def _deal(self, workers: list[WorkerTold]) -> None:
        """Deal out what the workers of a node may have more, always to one that has the fewest."""
        processes = self._processes_per_node or self._of_gpus(workers)
        for worker in workers:
            if worker.worker not in self._dealt:
                self._dealt[worker.worker] = worker.threads if processes is None else 0
        if processes is not None:
            has = sum(self._dealt[worker.worker] for worker in workers)
            for _ in range(processes - has):
                fewest = min((worker.worker for worker in workers), key=self._dealt.__getitem__)
                self._dealt[fewest] += 1

    def _of_gpus(self, workers: list[WorkerTold]) -> int | None:
        """Return how many processes a GPU node has: 1; None for a node without GPUs.

        Where workers were given devices of their own, as dask-cuda does it with one worker for
        each GPU, it is one for each of these.
        """
        if self._gpus_per_process == 0:
            return None
        return len({worker.devices[0] for worker in workers if worker.devices}) or None

    def _of_node(self, node: int, workers: list[WorkerTold]) -> dict[SlotId, Equipment]:
        slots = [
            (worker, number) for worker in workers for number in range(self._dealt[worker.worker])
        ]
        cores = max(worker.cores for worker in workers)
        threads = max(1, cores // max(1, len(slots)))
        return {
            SlotId(worker.worker, number, node): Equipment(worker.devices, threads)
            for worker, number in slots
        }
