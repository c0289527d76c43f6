"""One mini-batch that is not settled, and its attempts so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from daskprs._core.mini_batch import Assigned
from daskprs._core.pieces import Pieces

if TYPE_CHECKING:
    from daskprs._core.actions import SlotId
    from daskprs._core.bisection import Bisection
    from daskprs._core.mini_batch import MiniBatch
    from daskprs._core.pieces import Recovered


SPLIT = 100
"""When a lease dies of an unknown cause, its mini-batches are retried in leases of 1/100 its
size."""


class Entry(NamedTuple):
    """A mini-batch, its attempts so far, and the suspicions against it."""

    mini_batch: MiniBatch
    attempt: int = 1
    """Number of the current or next attempt."""
    tries: int = 0
    """Number of charged attempts."""
    timeouts: int = 0
    """Number of charged attempts that timed out."""
    losses: int = 0
    """Number of workers lost while this mini-batch was alone in its lease there."""
    refusals: int = 0
    """Number of leases of this mini-batch alone that no agent began."""
    lease_at_most: int | None = None
    """Maximum lease size of a suspect, which runs with other suspects only and without prefetch;
    None if this mini-batch is not a suspect.

    A lease of one suspect shows the culprit at the next death. A large lease holds very short
    mini-batches; ten thousand leases of one would cost more time than another lost worker."""
    of_lost_worker: bool = False
    """Whether this mini-batch was in a lease of a lost worker. Only one such mini-batch or lease
    runs on a worker at a time: else a culprit beside it would end each of its attempts."""
    runs_first: bool = False
    """Whether this mini-batch runs only as the first one of a process, alone in its lease. While it
    ran, a device reported a fatal error, or the memory was full: another mini-batch may have caused
    that before. Or a part of it failed in a process that may have been broken."""
    failed_on: tuple[SlotId, ...] = ()
    """Slots where this mini-batch failed, was lost with its worker, or was not begun, in order; a
    retry prefers another node or slot."""
    throttled: int = 0
    """Number of attempts that an endpoint has refused, since there were too many requests."""
    singled_out: int = 0
    """Number of these between which more others had succeeded than were refused."""
    succeeded_before: int = 0
    """Number of mini-batches that had succeeded at the last of them, and …"""
    refused_before: int = 0
    """… of attempts at any that had been refused."""
    elsewhere_until_s: float = 0.0
    """Time on the ledger's clock until which a retry waits for another node, if there is one."""
    bisection: Bisection | None = None
    """The search for the items that fail in it; None while its tries are not spent."""
    pieces: Pieces | None = None
    """What the next attempt runs; None: all items at once."""

    @property
    def home(self) -> str:
        """The worker that holds its data; empty after a failure, when another place is better."""
        blamed = self.failed_on or self.lease_at_most is not None
        return "" if blamed else self.mini_batch.worker

    @property
    def is_searched(self) -> bool:
        """Whether items that fail are being searched in it.

        What fails in a broken process then runs again in a new one, and is not held.
        """
        bisection = self.bisection
        return bisection is not None and (bisection.kept is None or bisection.is_trying)

    @property
    def kept(self) -> Recovered | None:
        """What it has, and keeps, of an earlier run; None: nothing."""
        return None if self.bisection is None else self.bisection.kept

    @property
    def assigned(self) -> Assigned:
        """The mini-batch and its attempt number, as a lease carries them."""
        return Assigned(self.mini_batch, self.attempt, self.pieces)

    def fitted(self, at_most: int) -> Entry:
        """Return the entry for an attempt with at most so many items in a call."""
        own = self.mini_batch.items if self.pieces is None else self.pieces.at_most
        if self.bisection is not None or (own is not None and own <= at_most):
            return self
        return self._replace(pieces=(self.pieces or Pieces())._replace(at_most=at_most))

    def charged(self, slot: SlotId, *, alone: bool, timed_out: bool = False) -> Entry:
        """Return the entry for another attempt after a charged one."""
        at_most = 1 if alone else self.lease_at_most
        return self._replace(
            attempt=self.attempt + 1,
            tries=self.tries + 1,
            timeouts=self.timeouts + timed_out,
            lease_at_most=at_most,
            failed_on=(*self.failed_on, slot),
        )

    def suspected(self, among: int, *, of_lost_worker: bool = False) -> Entry:
        """Return the entry for another attempt after a death with several suspects."""
        return self._replace(
            attempt=self.attempt + 1,
            lease_at_most=max(1, among // SPLIT),
            of_lost_worker=self.of_lost_worker or of_lost_worker,
        )

    def lost(self, slot: SlotId) -> Entry:
        """Return the entry for another attempt after its worker was lost with it alone."""
        return self._replace(
            attempt=self.attempt + 1,
            losses=self.losses + 1,
            lease_at_most=1,
            of_lost_worker=True,
            failed_on=(*self.failed_on, slot),
        )

    def refused(self, slot: SlotId, among: int) -> Entry:
        """Return the entry, not begun, after no agent began its lease."""
        return self._replace(
            refusals=self.refusals + (among == 1),
            lease_at_most=max(1, among // SPLIT),
            failed_on=(*self.failed_on, slot),
        )

    def forgiven(self, slot: SlotId) -> Entry:
        """Return the entry for another attempt after a failure that its place caused."""
        return self._replace(attempt=self.attempt + 1, failed_on=(*self.failed_on, slot))

    def again(self) -> Entry:
        """Return the entry for another attempt after one that was interrupted without a fault."""
        return self._replace(attempt=self.attempt + 1)

    def refused_by_endpoint(self, succeeded: int, refused: int) -> Entry:
        """Return the entry for another attempt after an endpoint has refused one.

        So many mini-batches have succeeded by now, and so many attempts were refused, with this.
        """
        others = refused - 1 - self.refused_before
        is_alone = self.throttled > 0 and succeeded - self.succeeded_before > others
        return self.again()._replace(
            throttled=self.throttled + 1,
            singled_out=self.singled_out + is_alone,
            succeeded_before=succeeded,
            refused_before=refused,
        )

    def first(self) -> Entry:
        """Return the entry to run as the first one of a process, in a lease of its own."""
        return self._replace(runs_first=True, lease_at_most=1)

    def alone(self) -> Entry:
        """Return the entry, not begun, to run in a lease of its own."""
        return self._replace(lease_at_most=1)
