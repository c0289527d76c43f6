"""What is to be leased: what waits for another attempt first, then what is new."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from daskprs.core.entry import Entry

PASSED_OVER = 100
"""So many entries that would rather run elsewhere are looked past, at most."""


class Backlog:
    """Hands out work in the order of the plan, what was handed back before the rest.

    Parameters
    ----------
    fresh
        Entries of the plan, made lazily: what is not asked for is never made.

    """

    def __init__(self, fresh: Iterator[Entry]) -> None:
        self.exhausted = False
        """Nothing new will come."""
        self._fresh = fresh
        self._waiting: deque[Entry] = deque()

    def __len__(self) -> int:
        """Return how many wait: handed back, or made to see where a load group ends."""
        return len(self._waiting)

    @property
    def empty(self) -> bool:
        """True when nothing is left to lease."""
        return self.exhausted and not self._waiting

    def put_back(self, entries: Iterable[Entry]) -> None:
        """Take back what was not begun: it comes next, in its old order."""
        self._waiting.extendleft(reversed(list(entries)))

    def again(self, entry: Entry | None) -> None:
        """Take an entry for another attempt, if it is to have one, after those that wait."""
        if entry is not None:
            self._waiting.append(entry)

    def look_ahead(self) -> None:
        """Make one new entry if none waits, so that it shows whether there is any."""
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
            How many at most. Suspects get smaller leases, by themselves.
        skips
            Says what is passed over: another slot may come for it.
        to_the_end
            How many more it may be, if that completes what is loaded at the price of one; else it
            may be fewer. 0 leaves it as it is.
        innocent
            Take no suspects: they run by themselves.

        """
        if innocent and self._waiting and self._waiting[0].lease_at_most is not None:
            return []
        work = self._handed_back(most, skips)
        if not work or work[0].lease_at_most is None:
            work += self._up_to_an_end(self._new(most - len(work)), to_the_end)
        return work

    def _up_to_an_end(self, new: list[Entry], to_the_end: int) -> list[Entry]:
        """Return new entries with the rest of the last load group, or without what is of it."""
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
