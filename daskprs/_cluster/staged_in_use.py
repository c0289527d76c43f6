"""The staged partitions that agents of a worker may still have to load."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from daskprs._core.columnar import ColumnBatch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from daskprs._core.lease import Lease, LeaseReturned

PARTITIONS = "daskprs-partitions"
"""Folder of staged partitions in the local directory of a worker."""


class OnNode(Protocol):
    """A staged partition: the result of a Dask task, and a dependency of leases."""

    def placed(self, piece: Any, folder: Path) -> Any:
        """Return the piece for an agent of this node; a file that has just arrived is written."""

    def remove(self) -> None:
        """Remove the file: the job is over."""


class StagedInUse:
    """Holds staged partitions on a worker, for its slots.

    Dask may drop its copy of a partition once no task needs it. By then the lease may have
    returned, while its agent has yet to load some of its mini-batches. The files of partitions that
    come from other workers are written into a folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[int, dict[int, tuple[int, OnNode]]] = {}
        """By slot and by number of the mini-batch, with the lease that brought it."""

    def placed(self, lease: Lease, staged: Mapping[int, OnNode]) -> Lease:
        """Return a lease whose mini-batches name files of this node."""
        if not staged:
            return lease
        held, work = self._held.setdefault(lease.slot, {}), []
        for assigned in lease.work:
            mini_batch = assigned.mini_batch
            number = getattr(mini_batch.piece, "partition", None)
            if number is not None:
                held[mini_batch.index] = lease.id, staged[number]
                piece = staged[number].placed(mini_batch.piece, self._folder)
                mini_batch = mini_batch._replace(piece=piece)
            work.append(assigned._replace(mini_batch=mini_batch))
        return replace(lease, work=ColumnBatch(work))

    def drop(self, lease: Lease, returned: LeaseReturned) -> None:
        """Drop what the agent of a slot needs no more.

        A lease that was cancelled may return after the next one of its slot has begun.
        """
        held = self._held.get(lease.slot, {})
        for index, (lease_id, _) in list(held.items()):
            if lease_id <= lease.id and index not in returned.running:
                del held[index]

    def close(self) -> None:
        """Remove the files of what is held: the job is over, or this worker is."""
        for held in [*self._held.values()]:
            for _, partition in [*held.values()]:
                partition.remove()
        self._held.clear()
