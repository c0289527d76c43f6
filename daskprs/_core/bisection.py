"""The search for the items that fail in one mini-batch.

A mini-batch that fails has an item that fails. A trial of the first half of a range shows in which
half it is, so that ten trials find one row of a thousand. Then all ranges without known failed
items run, in one attempt, whose rows are committed; where one of them fails, it is searched in
turn. Rows of trials are dropped: to keep them until the mini-batch is whole would need a second
store, and what the last attempt costs is one run of the mini-batch.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from daskprs._core.outcomes import Status
from daskprs._core.pieces import FailedItems, Pieces, size_of

if TYPE_CHECKING:
    from daskprs._core.outcomes import Outcome
    from daskprs._core.pieces import Range, Recovered

MOST_FAILED = 32
"""Number of failed items with which the search in a mini-batch ends …"""
SHARE = 4
"""… or this fraction (1/4) of its items, …"""
FEWEST_FAILED = 16
"""… but at least so many: a small mini-batch is searched to its end, which costs few attempts."""
MORE_TIME = 10
"""Times the time of a piece that an item gets which has run out of it."""
MOST_CLEARED = 2
"""How often an item may fail and then pass alone until it counts as one that fails."""
FRUITLESS = 4
"""Number of failed ranges without one that passed after which nothing may ever pass."""


class Bisection:
    """The search in one mini-batch, from its failure to its commit.

    `outcome` is that of its last attempt as a whole; if `is_sure`, that has failed in a sound
    process, so that a single item is found by it. With `confirms`, an item has to fail alone twice.
    `kept` is what an earlier run has of the mini-batch; all else runs, before anything has failed.
    `place` is the host and the process of that attempt.
    """

    def __init__(
        self,
        items: int,
        outcome: Outcome | None,
        *,
        confirms: bool = False,
        is_sure: bool = True,
        kept: Recovered | None = None,
        place: tuple[str, str] = ("", ""),
    ) -> None:
        self._confirms = confirms
        self.items = items
        self.outcome = outcome
        self.kept = kept
        self.failed: list[FailedItems] = []
        """What has failed by itself, in order."""
        self.has_passed = kept is not None and bool(kept.ranges)
        """Whether any range has passed."""
        self.is_counted = False
        """Whether it counts as one in which nothing has passed."""
        self._most = most_failed(items)
        self._searched: Range = (0, items)
        """The range that failed when all ranges ran."""
        self._window: Range | None = self._searched if kept is None else None
        """The part of it that must hold a failed item; None: all ranges run next."""
        self.is_confirming = False
        """Whether the next attempt runs an item again that has failed alone."""
        self.patience = 1
        """The time of a piece in terms of the usual time: more if an item was found to be slow."""
        self._good: Range | None = None
        """The smallest range that is known to have passed."""
        self._cleared: Counter[Range] = Counter()
        """How often an item that had failed alone has passed then."""
        self._divided: set[int] = set()
        """Where ranges are divided that failed, though no item in them has failed alone."""
        if items == 1 and is_sure and outcome is not None:
            self._add(self._searched, outcome, *place)

    @property
    def is_trying(self) -> bool:
        """Whether the next attempt, or the one under way, is a trial."""
        return self._window is not None

    @property
    def is_fruitless(self) -> bool:
        """Whether so much has failed, and nothing has passed, that all of it may fail."""
        is_much = len(self.failed) >= FRUITLESS or self.count == self.items
        return self.items > 1 and is_much and not self.has_passed

    @property
    def count(self) -> int:
        """Number of items that have failed by themselves."""
        return sum(one.stop - one.start for one in self.failed)

    def pieces(self) -> Pieces:
        """Return what the next attempt runs."""
        failed = tuple(self.failed)
        if self._window is not None:
            return Pieces(self._trial(self._window), is_trial=True)
        return Pieces(self._ranges(), failed=failed, kept=self.kept)

    def passed(self) -> None:
        """Record that a trial has passed."""
        self.has_passed = True
        assert self._window is not None, "it was a trial"  # noqa: S101 - for the types
        if self.is_confirming:
            self.is_confirming, self.patience = False, MORE_TIME * self.patience
            self._cleared[self._window] += 1
        halves = _halves(self._window)
        self._note_good(halves[0])
        if len(halves) > 1:
            self._window = halves[1]
            return
        # The item passes alone: what failed with others, or by chance, is divided, so that it ends.
        self._window = None
        start, stop = self._searched
        self._divided.add((start + stop) // 2)

    def fail(self, outcome: Outcome, failed_at: int, host: str = "", process: str = "") -> None:
        """Record that a range of the last attempt has failed."""
        if self._window is not None:
            first = _halves(self._window)[0]
            if failed_at and size_of(self._window) > 1:  # how it failed went with the process
                self._window = first
            elif size_of(first) > 1 or self._is_doubtful(first, outcome):
                self._window, self.is_confirming = first, size_of(first) == 1
            else:
                self._add(first, outcome, host, process)
        else:
            *passed, range_ = self._ranges()[: failed_at + 1]
            for one in passed:
                self._note_good(one)
            if size_of(range_) == 1 and self._is_doubtful(range_, outcome):
                self._searched = self._window = range_
                self.is_confirming = True
            elif size_of(range_) == 1 or self.count >= self._most:
                self._add(range_, outcome, host, process)
            else:
                self._searched = self._window = range_

    def _trial(self, window: Range) -> tuple[Range, ...]:
        """Return the halves of a window, and a range that shows whether the process is whole.

        It runs only if both halves fail. Without it, the next trial would need a new process.
        """
        halves = _halves(window)
        needs_more = len(halves) > 1 or self._confirms
        return halves if self._good is None or not needs_more else (*halves, self._good)

    def _note_good(self, range_: Range) -> None:
        if self._good is None or size_of(range_) < size_of(self._good):
            self._good = range_

    def _is_doubtful(self, item: Range, outcome: Outcome) -> bool:
        """Return whether an item that has failed alone runs again before it is found.

        A connection may have been lost, or a process been killed from outside. A piece has little
        time, too: the machine may have stood still.
        """
        if self.is_confirming or self._cleared[item] == MOST_CLEARED:
            return False
        return outcome.status is Status.RUN_TIMEOUT or self._confirms

    def _add(self, range_: Range, outcome: Outcome, host: str = "", process: str = "") -> None:
        failure = outcome.failure
        kind, message, text = failure[:3] if failure else (str(outcome.status), "", "")
        one = FailedItems(
            *range_, str(outcome.status), kind, message, text, outcome.attempt, host, process
        )
        self.failed = sorted([*self.failed, one])
        self._window, self.is_confirming = None, False

    def _ranges(self) -> tuple[Range, ...]:
        """Return the ranges without known failed items, and without kept ones, in order."""
        edges, start, divided = [], 0, sorted(self._divided)
        failed = ((one.start, one.stop) for one in self.failed)
        for first, last in sorted([*failed, *(self.kept.ranges if self.kept else ())]):
            edges.append((start, first))
            start = last
        edges.append((start, self.items))
        return tuple(
            (low, high)
            for first, last in edges
            for low, high in pairwise([first, *(at for at in divided if first < at < last), last])
            if low < high
        )


def most_failed(items: int) -> int:
    """Return the number of failed items with which the search in a mini-batch ends."""
    return min(MOST_FAILED, max(FEWEST_FAILED, items // SHARE))


def _halves(range_: Range) -> tuple[Range, ...]:
    """Return the halves of a range; one item has none."""
    start, stop = range_
    if stop - start == 1:
        return (range_,)
    middle = (start + stop) // 2
    return (start, middle), (middle, stop)
