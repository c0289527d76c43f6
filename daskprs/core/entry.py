"""One mini-batch that is not settled, with what was tried so far."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from daskprs.core.mini_batch import Assigned

if TYPE_CHECKING:
    from collections.abc import Iterable

    from daskprs.core.actions import SlotId
    from daskprs.core.mini_batch import MiniBatch


SPLIT = 100
"""Of a lease that came to grief nobody knows the culprit: each part of so many runs again."""


class Entry(NamedTuple):
    """A mini-batch, how often it was tried, and what is held against it."""

    mini_batch: MiniBatch
    attempt: int = 1
    """The number of the attempt that is being made or comes next."""
    tries: int = 0
    """Attempts that were charged."""
    timeouts: int = 0
    """Of these, how many ran out of time."""
    losses: int = 0
    """Workers that were lost while it was alone on them."""
    refusals: int = 0
    """Leases of it alone that no agent would take."""
    lease_at_most: int | None = None
    """A suspect runs in leases of at most so many suspects, nothing loaded ahead; None: no suspect.

    One alone is found out by the next death. A large lease is of very short mini-batches, and to
    run ten thousand of those one by one would take longer than to lose one worker more."""
    of_lost_worker: bool = False
    """It was at work on a worker that was lost: no other such one runs beside it on a worker. The
    one that ends them would take it along each time, and it would be failed for that."""
    failed_on: tuple[SlotId, ...] = ()
    """Where it failed, the last one last: another node is preferred, and another slot."""
    elsewhere_until_s: float = 0.0
    """Until then it waits for another node, if there is one."""

    @property
    def assigned(self) -> Assigned:
        """What a lease says of it."""
        return Assigned(self.mini_batch, self.attempt)

    def charged(self, slot: SlotId, *, alone: bool, timed_out: bool = False) -> Entry:
        """Return the entry for another attempt after one that counts as a try."""
        at_most = 1 if alone else self.lease_at_most
        return self._replace(
            attempt=self.attempt + 1,
            tries=self.tries + 1,
            timeouts=self.timeouts + timed_out,
            lease_at_most=at_most,
            failed_on=(*self.failed_on, slot),
        )

    def suspected(self, among: int, *, of_lost_worker: bool = False) -> Entry:
        """Return the entry for another attempt after a death that one of several brought about."""
        return self._replace(
            attempt=self.attempt + 1,
            lease_at_most=max(1, among // SPLIT),
            of_lost_worker=self.of_lost_worker or of_lost_worker,
        )

    def lost(self, slot: SlotId) -> Entry:
        """Return the entry for another attempt after its worker went away under it alone."""
        return self._replace(
            attempt=self.attempt + 1,
            losses=self.losses + 1,
            lease_at_most=1,
            of_lost_worker=True,
            failed_on=(*self.failed_on, slot),
        )

    def refused(self, slot: SlotId, among: int) -> Entry:
        """Return the entry, not begun, after no agent would take its lease."""
        return self._replace(
            refusals=self.refusals + (among == 1),
            lease_at_most=max(1, among // SPLIT),
            failed_on=(*self.failed_on, slot),
        )

    def forgiven(self, slot: SlotId) -> Entry:
        """Return the entry for another attempt after one that the place is to blame for."""
        return self._replace(attempt=self.attempt + 1, failed_on=(*self.failed_on, slot))

    def again(self) -> Entry:
        """Return the entry for another attempt after one that was broken off without a fault."""
        return self._replace(attempt=self.attempt + 1)

    def alone(self) -> Entry:
        """Return the entry, not begun, to be run by itself."""
        return self._replace(lease_at_most=1)


class InFlightLease(NamedTuple):
    """What the ledger knows of a lease until it comes back."""

    slot: SlotId
    entries: dict[int, Entry]
    """By index; what comes back is taken out."""
    continues: bool = False
    """The agent of the slot has some of these mini-batches already."""

    @property
    def of_suspects(self) -> bool:
        """True where what it carries is to run by itself."""
        return any(entry.lease_at_most is not None for entry in self.entries.values())

    @property
    def of_lost_worker(self) -> bool:
        """True where what it carries was at work on a worker that was lost: all of it, or none."""
        return any(entry.of_lost_worker for entry in islice(self.entries.values(), 1))

    def take(self, index: int, attempt: int) -> Entry | None:
        """Take an entry out; None for the late answer of an attempt that was taken back."""
        entry = self.entries.get(index)
        if entry is None or entry.attempt != attempt:
            return None
        return self.entries.pop(index)

    def keep(self, indexes: Iterable[int]) -> dict[int, Entry]:
        """Take out those of some indexes that are there."""
        return {index: self.entries.pop(index) for index in indexes if index in self.entries}
