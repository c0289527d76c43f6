"""The counts of a job: mini-batches and items, failures against budgets, errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from daskprs._core.ending import Errors, Kinds
from daskprs._core.events import Counts, Progress

if TYPE_CHECKING:
    from collections.abc import Iterable

    from daskprs._core.limits import Limits
    from daskprs._core.mini_batch import MiniBatch
    from daskprs._core.outcomes import Failure, Outcome


IGNORED = -1


@dataclass(slots=True)
class Settled:
    """The counts of what is settled; empty ranges count nowhere."""

    succeeded: int = 0
    given_up: int = 0
    items: int = 0
    items_succeeded: int = 0
    items_failed: int = 0
    not_returned: int = 0
    """Number of failed items of mini-batches that succeeded."""

    def succeed(self, total: int, succeeded: int, alone: int = 0, sign: int = 1) -> int:
        """Count a mini-batch that succeeded, or take it back; return its failed items.

        `alone` is how many of them have failed by themselves.
        """
        failed = max(0, total - succeeded)
        self.succeeded += sign
        self.items += sign * total
        self.items_succeeded += sign * succeeded
        self.items_failed += sign * failed
        self.not_returned += sign * (failed - alone)
        return failed

    def give_up(self, items: int, sign: int = 1) -> None:
        """Count a mini-batch whose tries are spent, or take it back."""
        self.given_up += sign
        self.items += sign * items
        self.items_failed += sign * items


@dataclass(slots=True)
class Budgets:
    """Counts final failures, and returns the exceeded limit on the first one beyond it."""

    limits: Limits
    failed_items: int = 0
    failed_mini_batches: int = 0
    before: Settled = field(default_factory=Settled)
    """What earlier runs have settled, and the plan has not come to: told, but not judged."""

    def fail_items(self, count: int) -> str | None:
        """Count items of a committed mini-batch that did not succeed."""
        self.failed_items += count
        return self._items_exceeded()

    def fail_mini_batch(self, items: int) -> str | None:
        """Count a mini-batch that was given up, and all its items."""
        self.failed_mini_batches += 1
        self.failed_items += items
        return self._mini_batches_exceeded() or self._items_exceeded()

    def judge_percent(self, total: int) -> str | None:
        """Judge the share of failed mini-batches, once each of `total` has been tried."""
        if not self.failed_mini_batches:
            return None
        allowed = self.limits.allowed_failed_percent
        # Exact, since the product of a float such as 0.1 is rounded: just the allowed share could
        # fail.
        if Fraction(100 * self.failed_mini_batches) <= Fraction(str(allowed)) * total:
            return None
        return (
            f"{self.failed_mini_batches} of {total} mini-batches failed, more than "
            f"allowed_failed_percent={allowed:g}"
        )

    def _mini_batches_exceeded(self) -> str | None:
        allowed = self.limits.allowed_failed_count
        if allowed == IGNORED or self.failed_mini_batches <= allowed:
            return None
        failed = self.failed_mini_batches + self.before.given_up
        noun = "mini-batch" if failed == 1 else "mini-batches"
        return f"{failed} {noun} failed, more than allowed_failed_count={allowed}"

    def _items_exceeded(self) -> str | None:
        allowed = self.limits.error_threshold
        if allowed == IGNORED or self.failed_items <= allowed:
            return None
        failed = self.failed_items + self.before.items_failed
        noun = "item" if failed == 1 else "items"
        return f"{failed} {noun} failed, more than error_threshold={allowed}"


@dataclass(slots=True)
class Tally(Settled):
    """Counts mini-batches and items."""

    planned: int = 0
    """Number of mini-batches drawn from the plan, without those known to be empty."""
    plan_complete: bool = False
    recovered: int = 0
    drawn: int = 0
    """Number of all mini-batches drawn from the plan."""
    before: Settled = field(default_factory=Settled)
    """What earlier runs have settled, and the plan has not come to."""

    def plan(self) -> None:
        """Count a new mini-batch."""
        self.drawn += 1
        self.planned += 1

    def commit(self, total: int, succeeded: int, *, empty: bool, alone: int = 0) -> int:
        """Count a successful attempt, and return the number of items that did not succeed.

        `alone` is how many of them have failed by themselves.
        """
        if empty:
            self.planned -= 1
            return 0
        return self.succeed(total, succeeded, alone)

    def commit_all(self, mini_batches: int, total: int, succeeded: int) -> None:
        """Count successful attempts in which every item succeeded."""
        self.succeeded += mini_batches
        self.items += total
        self.items_succeeded += succeeded

    def take_back(self, total: int, succeeded: int, *, empty: bool, alone: int = 0) -> None:
        """Undo the count of a successful attempt whose output could not be kept."""
        if empty:
            self.planned += 1
        else:
            self.succeed(total, succeeded, alone, sign=-1)

    def recover(self, total: int, succeeded: int, *, empty: bool, alone: int = 0) -> int:
        """Count a mini-batch that an earlier run has committed; return its failed items."""
        if empty:
            self.drawn += 1
            return 0
        self.plan()
        self.recovered += 1
        self.before.succeed(total, succeeded, alone, sign=-1)
        return self.succeed(total, succeeded, alone)

    def carry_failure(self, items: int) -> None:
        """Count a mini-batch that an earlier run has given up."""
        self.plan()
        self.give_up(items)
        self.before.give_up(items, sign=-1)

    def lost(self) -> str | None:
        """Return why a plan without further work is not done; None if all of it is settled."""
        left = self.planned - self.succeeded - self.given_up
        if not left:
            return None
        noun = "mini-batch is" if left == 1 else "mini-batches are"
        return (
            f"{left} {noun} neither done nor failed, though no work is left. This is an error of "
            "daskprs: please report it. A resume runs what is left"
        )

    def standing(self, *, expected: int | None, running: int, waiting: int) -> Progress:
        """Return the counts together with the running and waiting mini-batches.

        What earlier runs have settled counts from the start, before the plan comes to it.
        """
        before = Settled() if self.plan_complete else self.before
        succeeded, given_up = self.succeeded + before.succeeded, self.given_up + before.given_up
        return Progress(
            mini_batches=Counts(
                self.planned + before.succeeded + before.given_up, succeeded, given_up
            ),
            items=Counts(
                self.items + before.items,
                self.items_succeeded + before.items_succeeded,
                self.items_failed + before.items_failed,
            ),
            plan_complete=self.plan_complete,
            expected=expected,
            running=running,
            waiting=waiting,
            recovered=self.recovered + before.succeeded,
            not_returned=self.not_returned + before.not_returned,
        )


BRIEF_CHARS = 300
"""Maximum length of an error message kept for a mini-batch that waits for a retry."""


class ErrorLog:
    """The errors of a job, by what became of the mini-batches that had them."""

    def __init__(self) -> None:
        self.final, self.mended, self.starts = Kinds(), Kinds(), Kinds()
        self._pending: dict[int, Failure] = {}
        """The first error of each mini-batch to be retried, shortened, by its index."""
        self.any_attempt = False
        """Whether any attempt has ended, which proves that a process was up."""

    @property
    def headline(self) -> Failure | None:
        """The error that failed most mini-batches, or the first of a start if all starts failed.

        It is the first error of its class. To correct another one would not save the job.
        """
        return self.final.commonest or (None if self.any_attempt else self.starts.first)

    @property
    def counts(self) -> Errors:
        """The errors so far."""
        pending = Kinds()
        for failure in self._pending.values():
            pending.add(failure)
        return Errors(self.final, self.mended, pending, self.starts)

    def has_pending(self, indexes: Iterable[int]) -> bool:
        """Return whether any of these mini-batches had an error and is not settled."""
        return bool(self._pending) and not self._pending.keys().isdisjoint(indexes)

    def retry(self, index: int, failure: Failure | None) -> None:
        """Remember the first error of a mini-batch until it is settled."""
        self.any_attempt = True
        if failure is not None:
            brief = failure.message.partition("\n")[0][:BRIEF_CHARS]
            self._pending.setdefault(index, failure._replace(message=brief, traceback=""))

    def mend(self, index: int) -> None:
        """Count the first error of a mini-batch that succeeded, if it had one."""
        self.any_attempt = True
        self.mended.add(self._pending.pop(index, None))

    def isolate(self, index: int) -> None:
        """Forget the error of a mini-batch that is done but for the items that had it."""
        self.any_attempt = True
        self._pending.pop(index, None)

    def give_up(
        self, mini_batch: MiniBatch, outcome: Outcome, charged: int | None = None
    ) -> Failure | None:
        """Count the last error of a mini-batch that is given up, and return it with its place.

        `charged` is the number of its charged attempts, where these have used it up.
        """
        self.any_attempt = True
        self._pending.pop(mini_batch.index, None)
        failure = outcome.failure
        if failure is not None:
            where = f"{mini_batch.described}, attempt {outcome.attempt}"
            if charged is not None and charged != outcome.attempt:
                where += f" ({charged} charged)"  # else it looks like more than `run_max_try`
            failure = failure._replace(where=where)
        self.final.add(failure)
        return failure
