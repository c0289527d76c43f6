"""Which nodes of a cluster only run `preprocess`, and for which slots of the others."""

from __future__ import annotations

from collections import Counter
from itertools import cycle, islice
from typing import TYPE_CHECKING

from daskprs._core.stages import StageHost

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from daskprs._cluster.worker_events import Heartbeat
    from daskprs._core.actions import SlotId, SlotResources
    from daskprs._core.stages import Stages

    Nodes = Mapping[int, list[Heartbeat]]

ON_ITS_WAY = 1
"""Mini-batches of a worker for each slot, beyond one for each process: these work on while one that
is done travels."""
MOST_AT_ONCE = 256
"""Mini-batches that one worker gives to others at the same time. Each takes a connection, of which
Dask opens 512 at most, and a thread; and where one is lacking, no worker seems to answer."""


class StageHosts:
    """Finds nodes without a GPU, where others have one, and divides their processes among slots.

    Once a GPU was seen, these nodes never run `run`: a lost GPU comes back, and a model that was
    made for it is of no use elsewhere.
    """

    def __init__(self, stages: Stages | None) -> None:
        self._processes = None if stages is None else stages.processes
        self._has_preprocess = stages is not None and stages.preprocess is not None
        self._has_seen_gpu = False

    def hide_gpus(self) -> None:
        """Find no such nodes any more: `run` uses no GPU."""
        self._has_preprocess = False

    def without_run(self, nodes: Nodes, awaited: Iterable[str]) -> set[int]:
        """Return the nodes that offer no slots.

        Before a GPU was seen, none does while workers of further hosts, which are `awaited`, may
        have one.
        """
        if not self._has_preprocess:
            return set()
        with_gpu = {
            node for node, has in nodes.items() if any(one.gpus or one.devices for one in has)
        }
        self._has_seen_gpu = self._has_seen_gpu or bool(with_gpu)
        known = {one.host for has in nodes.values() for one in has}
        if self._has_seen_gpu or not known.issuperset(awaited):
            return nodes.keys() - with_gpu
        return set()

    def shared(
        self, offered: Mapping[SlotId, SlotResources], nodes: Nodes
    ) -> dict[SlotId, SlotResources]:
        """Return the slots, each with its share of the processes of nodes without slots."""
        hosts: dict[SlotId, tuple[StageHost, ...]] = dict.fromkeys(offered, ())
        slots, given = cycle(offered), Counter[str]()
        for node, workers in nodes.items():
            first = 0
            for worker, processes in self._dealt(workers):
                host = StageHost(worker.worker, node, first, processes)
                first += processes
                for slot, part in Counter(islice(slots, processes)).items():
                    share = min(part + ON_ITS_WAY, MOST_AT_ONCE - given[slot.worker])
                    if share > 0:
                        given[slot.worker] += share
                        hosts[slot] += (host._replace(share=share),)
        return {slot: has._replace(stage_hosts=hosts[slot]) for slot, has in offered.items()}

    def _dealt(self, workers: list[Heartbeat]) -> list[tuple[Heartbeat, int]]:
        """Return the workers of a node, and how many stage processes each has."""
        if self._processes is None:
            return [(worker, worker.threads) for worker in workers]
        each, more = divmod(self._processes, len(workers))
        return [(worker, each + (number < more)) for number, worker in enumerate(workers)]
