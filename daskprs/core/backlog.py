"""The mini-batches to lease: those that wait for another attempt first, then new ones."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from daskprs.core.entry import Entry

PASSED_OVER = 100
"""Maximum number of waiting entries that one slot skips before it stops searching."""


class Backlog:
    """Hands out work in the order of the plan; returned entries come before new ones.

    Parameters
    ----------
    fresh
        Entries of the plan, made lazily.

    """

    def __init__(self, fresh: Iterable[Entry] = ()) -> None:
        self.exhausted = False
        """Whether the plan has no further entries."""
        self._fresh = iter(fresh)
        self._waiting: deque[Entry] = deque()

    def __len__(self) -> int:
        """Return the number of waiting entries: returned ones, and new ones made in advance."""
        return len(self._waiting)

    @property
    def empty(self) -> bool:
        """Whether no entry is left to lease."""
        return self.exhausted and not self._waiting

    def put_back(self, entries: Iterable[Entry]) -> None:
        """Put entries that have not begun back to the front, in their old order."""
        self._waiting.extendleft(reversed(list(entries)))

    def again(self, entry: Entry | None) -> None:
        """Append an entry for another attempt after the waiting ones; ignore None."""
        if entry is not None:
            self._waiting.append(entry)

    def look_ahead(self) -> None:
        """Make one new entry if none waits, to find out whether the plan has another."""
        if not self._waiting:
            self._waiting.extend(self._new(1))

    def take(
        self,
        most: int,
        skips: Callable[[Entry], bool],
        to_the_end: int = 0,
        *,
        innocent: bool = False,
    ) -> list[Entry]:
        """Return the work of a lease for a slot.

        Parameters
        ----------
        most
            Maximum number of entries. Suspects get smaller leases, without other entries.
        skips
            Returns whether this slot skips an entry and leaves it for another slot.
        to_the_end
            Maximum number of further entries that may complete the last load group. Where they do
            not complete it, the lease may be shorter. 0 keeps the size.
        innocent
            Take no suspects: they run in leases of their own.

        """
        if innocent and self._waiting and self._waiting[0].lease_at_most is not None:
            return []
        work = self._handed_back(most, skips)
        if not work or work[0].lease_at_most is None:
            work += self._up_to_an_end(self._new(most - len(work)), to_the_end)
        return work

    def _up_to_an_end(self, new: list[Entry], to_the_end: int) -> list[Entry]:
        """Return new entries with the rest of the last load group, or without that group."""
        if not new or not to_the_end or new[-1].mini_batch.load_group is None:
            return new
        group = new[-1].mini_batch.load_group
        rest: list[Entry] = []
        while len(rest) <= to_the_end and (entries := self._new(1)):
            if entries[0].mini_batch.load_group != group:
                self._waiting.extend(entries)
                return new + rest
            rest += entries
        if len(rest) <= to_the_end:  # nothing follows
            return new + rest
        others = sum(entry.mini_batch.load_group != group for entry in new)
        kept = others if 2 * others >= len(new) else len(new)
        self._waiting.extend(new[kept:] + rest)
        return new[:kept]

    def _handed_back(self, most: int, skips: Callable[[Entry], bool]) -> list[Entry]:
        work: list[Entry] = []
        passed: list[Entry] = []
        while self._waiting and len(work) < most and len(passed) < PASSED_OVER:
            entry = self._waiting.popleft()
            if skips(entry):
                passed.append(entry)
            elif work and not _go_together(entry, work[0]):
                self._waiting.appendleft(entry)
                break
            else:
                work.append(entry)
                most = min(most, entry.lease_at_most or most)
        self._waiting.extendleft(reversed(passed))
        return work

    def _new(self, count: int) -> list[Entry]:
        entries = [] if self.exhausted else list(islice(self._fresh, count))
        self.exhausted = self.exhausted or len(entries) < count
        return entries


def _go_together(one: Entry, other: Entry) -> bool:
    return (one.lease_at_most, one.of_lost_worker) == (other.lease_at_most, other.of_lost_worker)
