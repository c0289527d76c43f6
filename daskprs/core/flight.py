"""A lease that is out: its slot, and what it carries."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from daskprs.core.actions import SlotId
    from daskprs.core.entry import Entry


class Flight(NamedTuple):
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
