"""Isolation: a mini-batch that fails in all its tries costs only the items that fail in it.

`Bisection` finds them. That holds only where items are independent: `run` returns for a range what
it returns for its halves. The first trial of two items and more that passes finds that out,
once for a job; where only single items pass, the attempt that runs all of them.
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import TYPE_CHECKING

from daskprs._core.actions import KeepRowColumns
from daskprs._core.bisection import MORE_TIME, Bisection
from daskprs._core.outcomes import Status

if TYPE_CHECKING:
    from collections.abc import Iterable

    from daskprs._core.entry import Entry
    from daskprs._core.ledger_state import LedgerState
    from daskprs._core.outcomes import Outcome
    from daskprs._core.pieces import Pieces, PiecesEnd, Recovered

OF_ITEMS = (
    Status.RUN_EXCEPTION,
    Status.RUN_NULL_RETURN,
    Status.RUN_TIMEOUT,
    Status.PROCESS_DIED,
)
"""How an attempt ends that one of its items may have ended."""
SHARES = 10
"""A piece may take this many times its share of the median of mini-batches …"""
SHORTEST_S = 1.0
"""… but at least this many seconds; a single item that has taken longer gets ten times as many."""
MEDIAN_OF = 101
"""Number of mini-batches, the last ones, whose median counts."""
MOST_FRUITLESS = 10
"""Number of bisections in which nothing has passed with which a job stops bisecting."""

MOST_WAITING = 1000
"""Largest number of mini-batches that wait for the first success in the job: each has its error."""


class Isolation:
    """Decides which mini-batches are bisected, and what is tried next in them."""

    def __init__(self, state: LedgerState) -> None:
        self._state = state
        self.is_on = state.limits.isolates
        """Whether mini-batches that fail are bisected."""
        self.is_independent: bool | None = True if state.limits.independent_rows else None
        """Whether items are independent of each other; None while that is unknown."""
        self._may_check = True
        """Whether an attempt may find that out: one in vain is enough."""
        self._is_warned = False
        self._fruitless = 0
        self._has_found_good = False
        self._is_told = False
        self._columns = state.limits.columns
        self.waiting: list[Entry] = []
        """Mini-batches in which nothing has passed, until anything in the job has: only then it is
        clear that the script does not fail for all rows, and which columns rows of nulls have."""
        self._run_s: deque[float] = deque(maxlen=MEDIAN_OF)

    def learn(self, run_s: Iterable[float]) -> None:
        """Record the seconds that calls of `run` took for whole mini-batches."""
        if self.is_on:
            self._run_s.extend(run_s)

    def is_to_tell(self, entry: Entry, outcome: Outcome) -> bool:
        """Return whether a search after the last try tells a bad item from a broken process.

        A mini-batch of one item is not searched: it is bad if its last try failed.
        """
        return bool(self.is_independent) and self._items(entry, outcome) > 1

    def learn_columns(self, columns: Iterable[tuple[str, ...] | None]) -> None:
        """Record the columns of what `run` returned, from outcomes that tell them."""
        known = next((one for one in columns if one is not None), None)
        if known is not None and self._columns is None:
            self._columns = known
            self._state.actions.append(KeepRowColumns(known))

    def waits(self, entry: Entry) -> bool:
        """Return whether the next attempt at a mini-batch waits until any item has succeeded."""
        bisection = entry.bisection
        if bisection is None or self._state.tally.items_succeeded:
            return False
        is_fruitless = bisection.is_fruitless and not self._has_found_good
        is_bad = is_fruitless or bisection.count == bisection.items
        return is_bad and len(self.waiting) < MOST_WAITING

    def released(self) -> list[Entry]:
        """Return the mini-batches that need not wait any more, to be attempted."""
        if not self.waiting or not self._state.tally.items_succeeded or not self.is_on:
            return []
        waiting, self.waiting = self.waiting, []
        return [one for entry in waiting if (one := self._next(entry, is_new=True)) is not None]

    def given_up(self, *, is_last: bool) -> list[Entry]:
        """Return the mini-batches that wait in vain: none is searched, or nothing else is left."""
        if self.is_on and not is_last:
            return []
        waiting, self.waiting = self.waiting, []
        return waiting

    def begun(
        self, entry: Entry, outcome: Outcome, place: tuple[str, str], *, is_sure: bool
    ) -> Entry | None:
        """Return the entry of a mini-batch with its tries spent, to be bisected; None if not."""
        items = self._items(entry, outcome)
        if not items:
            return None
        confirms = self._state.limits.run_max_try > 1
        bisection = Bisection(items, outcome, confirms=confirms, is_sure=is_sure, place=place)
        return self._next(entry._replace(bisection=bisection), is_new=True)

    def resumed(self, entry: Entry, kept: Recovered) -> Entry | None:
        """Return the entry that runs only what failed in an earlier run; None without a search.

        An item that has failed alone then need not do so twice again.
        """
        again = self._next(
            entry._replace(bisection=Bisection(kept.total, None, kept=kept)), is_new=True
        )
        return again and again._replace(lease_at_most=None)

    def passed(self, entry: Entry, outcome: Outcome) -> Entry | None:
        """Take a trial that has passed; return the entry for the next attempt, None to give up."""
        bisection = entry.bisection
        assert bisection is not None, "it was a trial"  # noqa: S101 - for the types
        self._check(entry, outcome.pieces)
        bisection.passed()
        self._has_found_good = True
        return self._next(entry)

    def failed(self, entry: Entry, outcome: Outcome, host: str, process: str) -> Entry | None:
        """Take a failed attempt at pieces; return the next one, None to give the mini-batch up."""
        bisection, end = entry.bisection, outcome.pieces
        assert bisection is not None, "it was an attempt at pieces"  # noqa: S101 - for the types
        if bisection.kept is not None:
            bisection.outcome = outcome
        if end is None or outcome.status not in OF_ITEMS:
            return None  # it could not be loaded any more, say: no item has failed
        self._check(entry, end)
        if entry.pieces is not None and entry.pieces.checks_at(end.failed_at):
            self._fail_to_check(entry)
            return self._next(entry)
        if end.passed_before or end.passed_after:
            bisection.has_passed = self._has_found_good = True
        bisection.fail(outcome, end.failed_at, host, process)
        if bisection.is_fruitless and not self._has_found_good:
            self._count(bisection)
        return self._next(entry)

    def _items(self, entry: Entry, outcome: Outcome) -> int:
        """Return the number of items of a failed mini-batch among which a search finds bad ones."""
        if not self.is_on or outcome.status not in OF_ITEMS or entry.mini_batch.partition_key:
            return 0
        if outcome.failure is not None and not outcome.failure.retryable:
            return 0
        return outcome.total or entry.mini_batch.items or 0

    def _count(self, bisection: Bisection) -> None:
        """Count a search in which nothing has passed."""
        if bisection.is_counted:
            return
        bisection.is_counted = True
        self._fruitless += 1
        if self._fruitless == MOST_FRUITLESS:
            self._stop(
                f"{MOST_FRUITLESS} mini-batches were bisected, and run() has succeeded for no part "
                "of any of them. The script may fail for all rows"
            )

    def finish(self, entry: Entry, end: PiecesEnd | None) -> None:
        """Tell people of the items that a committed mini-batch is without."""
        self._check(entry, end)
        bisection, pieces = entry.bisection, entry.pieces
        if bisection is None or pieces is None:
            return
        if pieces.checks and self.is_independent is None and len(pieces.ranges or ()) > 1:
            self._fail_to_check(entry)
        if not bisection.failed:
            return
        if bisection.kept is None and bisection.items - bisection.count == 1 < bisection.items:
            self._warn_of_single(f"{entry.mini_batch.described} is left with one row")
        first, *others = bisection.failed
        more = f", and {len(others)} more" if others else ""
        what = f"{first.kind}: {first.message}".partition("\n")[0].rstrip(".")
        count = bisection.count
        noun, them = ("item", "it") if count == 1 else ("items", "them")
        level = "info" if self._is_told else "warning"
        self._is_told = True
        self._state.remark(
            level,
            f"{entry.mini_batch.described} is done but for {count} {noun} of {bisection.items}, "
            f"number {first.start} in it{more}: {what}. failed_rows.parquet lists {them}.",
        )

    def _next(self, entry: Entry, *, is_new: bool = False) -> Entry | None:
        """Return the entry for the next attempt; None where the job bisects no more."""
        bisection = entry.bisection
        if not self.is_on or bisection is None:
            return None
        at_most = self._state.at_most if entry.pieces is None else entry.pieces.at_most
        pieces = bisection.pieces()._replace(at_most=at_most)
        checks = self.is_independent is None and self._may_check
        timeout_s = self._timeout_s(bisection, pieces)
        pieces = pieces._replace(checks=checks, timeout_s=timeout_s, columns=self._columns)
        again = entry if is_new else entry.again()
        # It goes on in its process, which is warm: no other slot is better.
        return again._replace(pieces=pieces, failed_on=(), lease_at_most=1, runs_first=False)

    def _timeout_s(self, bisection: Bisection, pieces: Pieces) -> float | None:
        """Return the seconds that a call may take; None where nothing is known."""
        if not self._run_s or not pieces.ranges:
            return None
        largest = max(stop - start for start, stop in pieces.ranges)
        seconds = max(SHORTEST_S, SHARES * median(self._run_s) * largest / bisection.items)
        return seconds * bisection.patience * (MORE_TIME if bisection.is_confirming else 1)

    def _check(self, entry: Entry, end: PiecesEnd | None) -> None:
        if end is None or end.is_independent is None or self.is_independent is not None:
            return
        self.is_independent = end.is_independent
        if not end.is_independent:
            self._stop(
                "the rows of a mini-batch are not independent of each other: for two halves of "
                f"rows of {entry.mini_batch.described}, run() returns other rows than for both at "
                "once, or rows that cannot be compared (independent_rows=True says that they are)"
            )

    def _fail_to_check(self, entry: Entry) -> None:
        """Take a call for single items together that has failed: no other attempt checks."""
        self._may_check = False
        self._warn_of_single(
            f"run() has failed for rows of {entry.mini_batch.described} together that pass alone"
        )

    def _warn_of_single(self, why: str) -> None:
        if self.is_independent is None and not self._is_warned:
            self._is_warned = True
            self._state.remark(
                "warning",
                f"{why}, so it could not be checked there whether rows are independent of each "
                "other: the output has what run() returned for single rows. If rows are "
                "independent, say so by independent_rows=True; if not, use on_error='raise'.",
            )

    def _stop(self, why: str) -> None:
        self.is_on = False
        self._state.remark(
            "warning",
            f"{why}. No further mini-batch is bisected: one that fails "
            "in all its tries fails as a whole.",
        )
