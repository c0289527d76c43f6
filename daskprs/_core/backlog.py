"""The mini-batches to lease: those that wait for another attempt first, then new ones.

Those whose retry is delayed wait apart, until it is due.
"""

from __future__ import annotations

import time
from collections import deque
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from daskprs._core.entry import Entry

PASSED_OVER = 100
"""Maximum number of waiting entries that one slot skips before it stops searching."""
IN_ADVANCE = 100
"""Maximum number of new entries without a home that are made to find those with one."""
MOST_AHEAD = 10_000
"""Maximum number of new entries that are made to find out how many there are …"""
AHEAD_AT_ONCE, AHEAD_S = 64, 0.005
"""… and how many of them at an event, in how many seconds: the job waits meanwhile, and a plan that
opens a file of a store for each entry takes long."""


class Backlog:
    """Hands out work in the order of the plan; returned entries come before new ones.

    An entry with a home, the worker that holds its data, waits in the queue of that worker. `take`
    gives it to the slots there, and `move` gives it to others. `fresh` has the entries of the plan,
    made lazily, and None where the plan has none yet. With `ahead`, entries are made before they
    are needed: the number of entries is not known, and a job tells soon how much is left.
    """

    def __init__(self, fresh: Iterable[Entry | None] = (), *, ahead: bool = False) -> None:
        self.exhausted = False
        """Whether the plan has no further entries."""
        self._fresh = iter(fresh)
        self._ahead = ahead
        self._paused = False
        """Whether the plan has no further entry yet; the next `catch_up` asks again."""
        self._has_homes = False
        """Whether the plan has given an entry with a home, or had none yet."""
        self._waiting: deque[Entry] = deque()
        self._ready: deque[Entry] = deque()
        """New entries for any slot, made in advance."""
        self._at_home: dict[str, deque[Entry]] = {}
        """Entries with a home, by worker; no queue is empty."""
        self._delayed: list[tuple[float, int, Entry]] = []
        """A heap of entries that are not due yet, by the time at which they are, then in order."""
        self._numbers = count()

    def __len__(self) -> int:
        """Return the number of waiting entries: returned ones, and new ones made in advance."""
        return self._at_hand + self.delayed

    @property
    def _at_hand(self) -> int:
        """Number of waiting entries that can be leased now."""
        located = sum(map(len, self._at_home.values()))
        return len(self._waiting) + len(self._ready) + located

    @property
    def delayed(self) -> int:
        """Number of waiting entries that are not due yet."""
        return len(self._delayed)

    @property
    def due_s(self) -> float | None:
        """Time on the ledger's clock at which the next delayed entry is due; None without one."""
        return self._delayed[0][0] if self._delayed else None

    @property
    def has_only_delayed(self) -> bool:
        """Whether all that is left to lease is not due yet."""
        return self.exhausted and bool(self._delayed) and not self._at_hand

    @property
    def empty(self) -> bool:
        """Whether no entry is left to lease."""
        return self.exhausted and not len(self)

    @property
    def is_ahead(self) -> bool:
        """Whether a new entry is made though there are others that no slot has taken."""
        return bool(self._ready or self._at_home)

    @property
    def has_none_now(self) -> bool:
        """Whether no entry can be leased before the next event."""
        return (self.exhausted or self._paused) and not self._at_hand

    @property
    def homes(self) -> dict[str, int]:
        """Number of entries that wait for the slots of each worker; 0 is left out."""
        return {home: len(queue) for home, queue in self._at_home.items()}

    def put_back(self, entries: Iterable[Entry], *, anywhere: bool = False) -> None:
        """Put entries that have not begun back to the front, in their old order.

        With `anywhere`, any slot may take them, also those that have a home.
        """
        others = list(entries) if anywhere else self._send_home(entries)
        self._waiting.extendleft(reversed(others))

    def again(self, entry: Entry | None) -> None:
        """Append an entry for another attempt after the waiting ones; ignore None."""
        if entry is not None:
            self._waiting.append(entry)

    # ---- later ----

    def delay(self, entry: Entry, until_s: float) -> None:
        """Keep an entry for another attempt, which is due at a time on the ledger's clock."""
        heappush(self._delayed, (until_s, next(self._numbers), entry))

    def pass_time(self, now_s: float) -> None:
        """Append the entries that have become due after the waiting ones."""
        while self._delayed and self._delayed[0][0] <= now_s:
            self._waiting.append(heappop(self._delayed)[-1])

    # ---- from the plan ----

    def catch_up(self) -> None:
        """Make all entries that a plan with homes has now; other plans are made as needed."""
        self._paused = False
        if self._has_homes and len(self._ready) < IN_ADVANCE:
            self._ready.extend(self._drawn(IN_ADVANCE - len(self._ready)))
        elif self._ahead and len(self._ready) < MOST_AHEAD:
            self._ready.extend(self._drawn(AHEAD_AT_ONCE, time.monotonic() + AHEAD_S))

    def look_ahead(self) -> None:
        """Make one new entry if none waits, to find out whether the plan has another."""
        if not self._at_hand:
            self._ready.extend(self._drawn(1))

    def _drawn(self, count: int, until_s: float = inf) -> list[Entry]:
        """Draw entries without a home from the plan, and send those with one there.

        No other one is begun after the time `until_s`.
        """
        entries: list[Entry] = []
        if count <= 0 or self.exhausted or self._paused:
            return entries
        for entry in self._fresh:
            if entry is None:
                self._has_homes = self._paused = True
                return entries
            if home := entry.mini_batch.worker:
                self._has_homes = True
                self._at_home.setdefault(home, deque()).append(entry)
                continue
            entries += (entry,)  # a plan may have millions: nothing is called for each of them
            count -= 1
            if not count or (until_s < inf and time.monotonic() >= until_s):
                return entries
        self.exhausted = True
        return entries

    # ---- to a slot ----

    def take(
        self,
        most: int,
        skips: Callable[[Entry], bool],
        to_the_end: int = 0,
        *,
        worker: str = "",
        slots: int = 1,
        innocent: bool = False,
    ) -> list[Entry]:
        """Return the work of a lease for a slot: at most `most` entries.

        Suspects get smaller leases, without other entries; with `innocent`, none is taken. What the
        slot `skips` is left for another one. Up to `to_the_end` further entries may complete the
        last load group; where they do not complete it, the lease may be shorter. 0 keeps the size.
        `slots` is how many share the entries whose home is this `worker`.
        """
        if innocent and self._waiting and self._waiting[0].lease_at_most is not None:
            return []
        work = self._handed_back(most, skips)
        if not work or work[0].lease_at_most is None:
            new = self._new(most - len(work), worker, slots)
            work += self._up_to_an_end(new, to_the_end, worker)
        return work

    def move(self, home: str, most: int) -> list[Entry]:
        """Return the last entries of a worker, for a slot of another worker."""
        queue = self._at_home[home]
        entries = [queue.pop() for _ in range(min(most, len(queue)))]
        self._forget_if_empty(home)
        return entries[::-1]

    def release(self, home: str) -> None:
        """Let any slot take the entries of a worker: they are new ones without a home."""
        self._ready.extendleft(reversed(self._at_home.pop(home)))

    def _up_to_an_end(self, new: list[Entry], to_the_end: int, worker: str) -> list[Entry]:
        """Return new entries with the rest of the last load group, or without that group."""
        if not new or not to_the_end or new[-1].mini_batch.load_group is None:
            return new
        # Each agent that has a part of a row group decodes the group. Leases that end where a group
        # does decode a third fewer of them twice.
        group = new[-1].mini_batch.load_group
        rest: list[Entry] = []
        while len(rest) <= to_the_end and (entries := self._new(1, worker)):
            if entries[0].mini_batch.load_group != group:
                self._waiting.extend(self._send_home(entries))
                return new + rest
            rest += entries
        if len(rest) <= to_the_end:  # nothing follows
            return new + rest
        others = sum(entry.mini_batch.load_group != group for entry in new)
        kept = others if 2 * others >= len(new) else len(new)
        self._waiting.extend(self._send_home(new[kept:] + rest))
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

    def _new(self, count: int, worker: str, slots: int = 1) -> list[Entry]:
        """Return new entries: a slot's share of those at its worker, then those without a home."""
        entries: list[Entry] = []
        if queue := self._at_home.get(worker):
            share = min(count, -(-len(queue) // slots))
            entries += [queue.popleft() for _ in range(share)]
            self._forget_if_empty(worker)
        while self._ready and len(entries) < count:
            entries.append(self._ready.popleft())
        return entries + self._drawn(count - len(entries))

    def _send_home(self, entries: Iterable[Entry]) -> list[Entry]:
        """Put entries back to the front of the queue of their home, and return the others."""
        others: list[Entry] = []
        for entry in reversed(list(entries)):
            if entry.home:
                self._at_home.setdefault(entry.home, deque()).appendleft(entry)
            else:
                others.append(entry)
        return others[::-1]

    def _forget_if_empty(self, home: str) -> None:
        if not self._at_home[home]:
            del self._at_home[home]


def _go_together(one: Entry, other: Entry) -> bool:
    return (one.lease_at_most, one.of_lost_worker) == (other.lease_at_most, other.of_lost_worker)
