"""Which slots a cluster offers: its hosts are nodes, and each worker has some of their slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daskprs.core.actions import SlotId

if TYPE_CHECKING:
    from collections.abc import Mapping


class Nodes:
    """Numbers the hosts of a cluster 0, 1, … in the order in which they are seen first."""

    def __init__(self, node_count: int | None, processes_per_node: int | None) -> None:
        self._node_count = node_count
        self._processes_per_node = processes_per_node
        self._numbers: dict[str, int] = {}

    def slots(self, workers: Mapping[str, Mapping[str, Any]]) -> list[SlotId]:
        """Return the slots of these workers (as the scheduler describes them), node by node."""
        hosts: dict[int, list[str]] = {}
        for address, worker in workers.items():
            node = self._numbers.setdefault(worker["host"], len(self._numbers))
            hosts.setdefault(node, []).append(address)
        used = sorted(hosts)[: self._node_count]
        return [
            SlotId(worker=address, number=number, node=node)
            for node in used
            for address, count in self._shares(hosts[node], workers)
            for number in range(count)
        ]

    def _shares(
        self, addresses: list[str], workers: Mapping[str, Mapping[str, Any]]
    ) -> list[tuple[str, int]]:
        """Deal the processes of one node out to its workers, as evenly as it goes."""
        if self._processes_per_node is None:
            return [(address, workers[address]["nthreads"]) for address in addresses]
        each, more = divmod(self._processes_per_node, len(addresses))
        return [(address, each + (place < more)) for place, address in enumerate(addresses)]
