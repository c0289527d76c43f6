"""Partitions that workers hold for a job. Leases depend on them; they are released when done."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from daskprs._core.columnar import ColumnBatch
from daskprs._inputs.source.pieces import Uncomputed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from distributed import Client, Future

    from daskprs._core.lease import Lease
    from daskprs._core.mini_batch import MiniBatch


@dataclass(slots=True)
class HeldPartition:
    """A partition that the cluster holds, or is to compute again if it has lost it."""

    staged: Future
    left: set[int] = field(default_factory=set)
    """Numbers of the mini-batches that are not settled."""
    failure: Uncomputed | None = None
    """Why the partition is lost for good."""


P = TypeVar("P", bound=HeldPartition)


class StagedWork(Generic[P]):
    """Holds staged partitions for the driver; a piece of a mini-batch names its `partition`.

    A partition is let go when its last mini-batch is settled.
    """

    is_known = True
    """Whether there are mini-batches as soon as there are slots."""

    def __init__(self) -> None:
        self.held: dict[int, P] = {}
        """The partitions with mini-batches that are not settled."""

    def open(self, client: Client, wake: Callable[[], None]) -> None:
        """Begin on a cluster; any thread may call `wake` when `turn` has something to do."""

    def turn(self, slots: Mapping[str, int], *, are_all: bool) -> None:
        """Do what is due.

        `slots` has the number of slots of each worker, and `are_all` says whether no other worker
        is expected to offer some soon.
        """

    def obstacles(self) -> tuple[str, ...]:
        """Return the reasons why slots wait for the input, in clauses for people."""
        return ()

    def close(self) -> None:
        """Let all partitions go."""
        for number in [*self.held]:
            self.release(number)

    def loaded(self, lease: Lease) -> tuple[Lease, dict[int, Future]]:
        """Return a lease, and the staged partitions that it needs, by number.

        A mini-batch whose partition is lost for good fails with the reason.
        """
        if not self.held:
            return lease, {}
        work, futures = [], {}
        for assigned in lease.work:
            mini_batch = assigned.mini_batch
            number = getattr(mini_batch.piece, "partition", None)
            if number is not None:
                partition = self.held[number]
                if partition.failure is None:
                    futures[number] = partition.staged
                else:
                    mini_batch = mini_batch._replace(piece=partition.failure)
            work.append(assigned._replace(mini_batch=mini_batch))
        return replace(lease, work=ColumnBatch(work)), futures

    def has_lost(self) -> bool:
        """Return whether staged partitions have been lost since, which cannot be computed again.

        A lease that needs one of them has ended without having begun.
        """
        ended = [
            (number, partition)
            for number, partition in self.held.items()
            if partition.failure is None and partition.staged.status in ("error", "cancelled")
        ]
        for number, partition in ended:
            try:
                partition.staged.result()
            except Exception as error:  # noqa: BLE001 - whatever the user's tasks raise
                partition.failure = Uncomputed.of(error, number)
        return bool(ended)

    def settle(self, mini_batches: Iterable[MiniBatch]) -> None:
        """Let partitions go whose mini-batches are all settled."""
        for mini_batch in mini_batches if self.held else ():
            number = getattr(mini_batch.piece, "partition", None)
            if number is not None:
                left = self.held[number].left
                left.discard(mini_batch.index)
                if not left:
                    self.release(number)

    def release(self, number: int) -> None:
        """Let a partition go."""
        self.held.pop(number).staged.release()
