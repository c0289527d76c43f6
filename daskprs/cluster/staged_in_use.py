"""The staged partitions that agents of a worker may still have to load."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from daskprs.core.columnar import ColumnBatch
from daskprs.inputs.collections.source import PartitionSlice

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from daskprs.core.lease import Lease, LeaseReturned
    from daskprs.inputs.collections.staging import StagedPartition

PARTITIONS = "daskprs-partitions"
"""Folder of staged partitions in the local directory of a worker."""


class StagedInUse:
    """Holds staged partitions for the slots of a worker.

    Dask may drop its copy of a partition once no task needs it. By then the lease may have
    returned, while its agent has yet to load some of its mini-batches.

    Parameters
    ----------
    folder
        Where the files of partitions that come from other workers are written.

    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[int, dict[int, StagedPartition]] = {}
        """By slot and by number of the mini-batch."""

    def placed(self, lease: Lease, staged: Mapping[int, StagedPartition]) -> Lease:
        """Return a lease whose mini-batches name files of this node."""
        if not staged:
            return lease
        held, work = self._held.setdefault(lease.slot, {}), []
        for assigned in lease.work:
            mini_batch = assigned.mini_batch
            if isinstance(mini_batch.piece, PartitionSlice):
                number, start, stop, _ = mini_batch.piece
                held[mini_batch.index] = partition = staged[number]
                piece = partition.piece(start, stop, self._folder)
                mini_batch = mini_batch._replace(piece=piece)
            work.append(assigned._replace(mini_batch=mini_batch))
        return replace(lease, work=ColumnBatch(work))

    def drop(self, lease: Lease, returned: LeaseReturned) -> None:
        """Drop what the agent of a slot needs no more."""
        held = self._held.pop(lease.slot, {})
        self._held[lease.slot] = {one: held[one] for one in returned.running if one in held}
