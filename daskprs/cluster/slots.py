"""Which slots a cluster offers: its hosts are nodes, and each worker has some of their slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daskprs.core.actions import SlotId

if TYPE_CHECKING:
    from collections.abc import Mapping


class Nodes:
    """Numbers the hosts of a cluster 0, 1, … in the order in which they are seen first.

    A worker keeps the slots that it was given as long as it lives, since a slot that is taken away
    has an agent in it, and perhaps an hour of work: one that joins its host later gets what is
    left, and what a lost one had goes to those that live.
    """

    def __init__(self, node_count: int | None, processes_per_node: int | None) -> None:
        self._node_count = node_count
        self._processes_per_node = processes_per_node
        self._numbers: dict[str, int] = {}
        self._dealt: dict[str, int] = {}
        """How many slots each living worker has."""

    def slots(self, workers: Mapping[str, Mapping[str, Any]]) -> list[SlotId]:
        """Return the slots of these workers (as the scheduler describes them), node by node."""
        hosts: dict[int, list[str]] = {}
        for address, worker in workers.items():
            node = self._numbers.setdefault(worker["host"], len(self._numbers))
            hosts.setdefault(node, []).append(address)
        self._dealt = {worker: self._dealt[worker] for worker in workers if worker in self._dealt}
        used = sorted(hosts)[: self._node_count]
        for node in used:
            self._deal(hosts[node], workers)
        return [
            SlotId(worker=address, number=number, node=node)
            for node in used
            for address in hosts[node]
            for number in range(self._dealt[address])
        ]

    def _deal(self, addresses: list[str], workers: Mapping[str, Mapping[str, Any]]) -> None:
        """Deal out what the workers of a node may have more, always to one that has the fewest."""
        for address in addresses:
            if address not in self._dealt:
                threads = workers[address]["nthreads"]
                self._dealt[address] = threads if self._processes_per_node is None else 0
        if self._processes_per_node is not None:
            has = sum(self._dealt[address] for address in addresses)
            for _ in range(self._processes_per_node - has):
                fewest = min(addresses, key=self._dealt.__getitem__)
                self._dealt[fewest] += 1
