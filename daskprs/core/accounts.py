"""Accounts of attempts: counts, failure budgets, and the resulting actions."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from daskprs.core.actions import Abort, Action, Commit, FailAttempt, Finish
from daskprs.core.ending import INPUT_HAS_CHANGED, Errors, Kinds
from daskprs.core.events import Counts, Progress
from daskprs.core.outcomes import Failure, Outcome, Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from daskprs.core.actions import SlotId
    from daskprs.core.entry import Entry
    from daskprs.core.limits import Limits
    from daskprs.core.stall_timer import StallTimer


IGNORED = -1


@dataclass(slots=True)
class Budgets:
    """Counts final failures, and returns the exceeded limit on the first one beyond it."""

    limits: Limits
    failed_items: int = 0
    failed_mini_batches: int = 0

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
        allowed = self.limits.allowed_failed_percent
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
        noun = "mini-batch" if self.failed_mini_batches == 1 else "mini-batches"
        return f"{self.failed_mini_batches} {noun} failed, more than allowed_failed_count={allowed}"

    def _items_exceeded(self) -> str | None:
        allowed = self.limits.error_threshold
        if allowed == IGNORED or self.failed_items <= allowed:
            return None
        noun = "item" if self.failed_items == 1 else "items"
        return f"{self.failed_items} {noun} failed, more than error_threshold={allowed}"


@dataclass(slots=True)
class Tally:
    """Counts mini-batches and items; empty ranges count nowhere."""

    planned: int = 0
    """Number of mini-batches drawn from the plan, without those known to be empty."""
    plan_complete: bool = False
    succeeded: int = 0
    given_up: int = 0
    items: int = 0
    items_succeeded: int = 0
    items_failed: int = 0
    recovered: int = 0
    drawn: int = 0
    """Number of all mini-batches drawn from the plan."""

    def plan(self) -> None:
        """Count a new mini-batch."""
        self.drawn += 1
        self.planned += 1

    def commit(self, total: int, succeeded: int, failed: int, *, empty: bool) -> None:
        """Count a successful attempt, and the items in it that did not succeed."""
        if empty:
            self.planned -= 1
            return
        self.succeeded += 1
        self.items += total
        self.items_succeeded += succeeded
        self.items_failed += failed

    def commit_all(self, mini_batches: int, total: int, succeeded: int) -> None:
        """Count successful attempts in which every item succeeded."""
        self.succeeded += mini_batches
        self.items += total
        self.items_succeeded += succeeded

    def take_back(self, total: int, succeeded: int, *, empty: bool) -> None:
        """Undo the count of a successful attempt whose output could not be kept."""
        if empty:
            self.planned += 1
            return
        self.succeeded -= 1
        self.items -= total
        self.items_succeeded -= succeeded
        self.items_failed -= max(0, total - succeeded)

    def give_up(self, items: int) -> None:
        """Count a mini-batch whose tries are spent."""
        self.given_up += 1
        self.items += items
        self.items_failed += items

    def recover(self, total: int, succeeded: int, failed: int, *, empty: bool) -> None:
        """Count a mini-batch that an earlier run has committed."""
        self.drawn += 1
        if not empty:
            self.planned += 1
            self.recovered += 1
            self.succeeded += 1
            self.items += total
            self.items_succeeded += succeeded
            self.items_failed += failed

    def carry_failure(self, items: int) -> None:
        """Count a mini-batch that an earlier run has given up."""
        self.plan()
        self.give_up(items)

    def standing(self, *, expected: int | None, running: int, waiting: int) -> Progress:
        """Return the counts together with the running and waiting mini-batches."""
        return Progress(
            mini_batches=Counts(self.planned, self.succeeded, self.given_up),
            items=Counts(self.items, self.items_succeeded, self.items_failed),
            plan_complete=self.plan_complete,
            expected=expected,
            running=running,
            waiting=waiting,
            recovered=self.recovered,
        )


TIMEOUTS = (Status.RUN_TIMEOUT, Status.LOAD_TIMEOUT)
BRIEF_CHARS = 300


class Accounts:
    """Settles each mini-batch once, and ends the job on the first failure beyond a limit."""

    def __init__(self, limits: Limits, patience: StallTimer) -> None:
        self.over = False
        self.actions: list[Action] = []
        """Actions of the current event; empty once the job is over."""
        self.tally = Tally()
        self._limits = limits
        self._patience = patience
        self._budgets = Budgets(limits)
        self._final, self._mended, self._starts = Kinds(), Kinds(), Kinds()
        self._pending: dict[int, Failure] = {}
        """The first error of each mini-batch to be retried, shortened, by its index."""
        self._tried = False
        """Whether any attempt has ended, which proves that a process was up."""

    # ---- errors ----

    @property
    def errors(self) -> Errors:
        """The errors so far."""
        pending = Kinds()
        for failure in self._pending.values():
            pending.add(failure)
        return Errors(self._final, self._mended, pending, self._starts)

    @property
    def headline(self) -> Failure | None:
        """The first error of a mini-batch that was given up, or of a start if all starts failed."""
        return self._final.first or (None if self._tried else self._starts.first)

    def not_started(self, failure: Failure | None) -> None:
        """Count a process that did not start."""
        self._starts.add(failure)

    def has_failed(self, indexes: Iterable[int]) -> bool:
        """Say whether any of these mini-batches had an error and is not settled."""
        return bool(self._pending) and not self._pending.keys().isdisjoint(indexes)

    def _retry(self, entry: Entry, outcome: Outcome) -> None:
        """Remember the first error of a mini-batch until it is settled."""
        self._tried = True
        if outcome.failure is not None:
            brief = outcome.failure.message.partition("\n")[0][:BRIEF_CHARS]
            failure = outcome.failure._replace(message=brief, traceback="")
            self._pending.setdefault(entry.mini_batch.index, failure)

    # ---- attempts: a returned entry is to be retried ----

    def commit(
        self,
        entry: Entry,
        to: Commit,
        position: int,
        total: int,
        succeeded: int,
        empty: bool,  # noqa: FBT001 - columns
    ) -> None:
        """Settle a mini-batch by a successful attempt, at a position of the results of a commit."""
        if not to.positions:
            self._patience.progress()
            self.actions.append(to)
        to.mini_batches.append(entry.mini_batch)
        to.positions.append(position)
        failed = max(0, total - succeeded)
        self._tried = True
        self._mended.add(self._pending.pop(entry.mini_batch.index, None))
        self.tally.commit(total, succeeded, failed, empty=empty)
        if failed:
            self.abort_if(self._budgets.fail_items(failed))

    def commit_all(self, done: Commit, totals: Sequence[int], succeeded: Sequence[int]) -> None:
        """Settle mini-batches that never failed, by attempts in which every item succeeded."""
        self._tried = True
        if done.positions:
            self._patience.progress()
            self.actions.append(done)
            self.tally.commit_all(len(totals), sum(totals), sum(succeeded))

    def take_back(self, actions: Iterable[Action]) -> None:
        """Undo the counts of commits that could not be written; the job ends then."""
        for commit in actions:
            if isinstance(commit, Commit):
                outcomes = commit.made.outcomes
                for total, succeeded, empty in outcomes.columns("total", "succeeded", "empty"):
                    self.tally.take_back(total, succeeded, empty=empty)

    def recover(self, total: int, succeeded: int, *, empty: bool) -> None:
        """Settle a mini-batch that an earlier run has committed."""
        failed = max(0, total - succeeded)
        self.tally.recover(total, succeeded, failed, empty=empty)
        self.abort_if(self._budgets.fail_items(failed))

    def carry_failure(self, items: int) -> None:
        """Settle a mini-batch that an earlier run gave up and this run does not retry."""
        self.tally.carry_failure(items)
        self.abort_if(self._budgets.fail_mini_batch(items))

    def charge(
        self, entry: Entry, outcome: Outcome, slot: SlotId, *, alone: bool = False
    ) -> Entry | None:
        """Charge a failed attempt; give the mini-batch up when its tries are spent."""
        failure = outcome.failure
        again = entry.charged(slot, alone=alone, timed_out=outcome.status in TIMEOUTS)
        retryable = failure is None or failure.retryable
        if retryable and again.tries < self._limits.run_max_try:
            self._retry(entry, outcome)
            self.actions.append(FailAttempt(entry.mini_batch, outcome, final=False, charged=True))
            return again
        self._give_up(entry, outcome, charged=True)
        if self._limits.fail_on_timeout and again.timeouts == again.tries:
            index, tries = entry.mini_batch.index, again.tries
            told = f"all its {tries} attempts" if tries > 1 else "its attempt"
            self.abort_if(f"mini-batch {index} ran out of time in {told} (fail_on_timeout)")
        return None

    def record_suspect(self, entry: Entry, outcome: Outcome, suspects: int) -> Entry:
        """Record the failed attempt of one of several suspects, without a charge."""
        self._retry(entry, outcome)
        self.actions.append(FailAttempt(entry.mini_batch, outcome, final=False, charged=False))
        return entry.suspected(suspects)

    def record_uncharged(self, entry: Entry, outcome: Outcome, slot: SlotId) -> Entry:
        """Record a failed attempt in a place where everything fails, without a charge."""
        self._retry(entry, outcome)
        self.actions.append(FailAttempt(entry.mini_batch, outcome, final=False, charged=False))
        return entry.forgiven(slot)

    def lose(self, entry: Entry, slot: SlotId) -> Entry | None:
        """Count the loss of a worker against the mini-batch that was alone in its lease there."""
        again = entry.lost(slot)
        outcome = _lost(entry, slot, again.losses)
        if again.losses < self._limits.max_node_losses:
            self._retry(entry, outcome)
            self.actions.append(
                FailAttempt(
                    entry.mini_batch, outcome, final=False, charged=False, lost_node=slot.node
                )
            )
            return again
        self._give_up(entry, outcome, charged=False, lost_node=slot.node)
        return None

    def refuse_input(self, entry: Entry, outcome: Outcome) -> None:
        """Give up a mini-batch whose files have changed, and end the job."""
        self._settle_failed(entry, outcome, charged=True)
        self.abort(INPUT_HAS_CHANGED, outcome.failure)

    def _give_up(
        self, entry: Entry, outcome: Outcome, *, charged: bool, lost_node: int | None = None
    ) -> None:
        items = self._settle_failed(entry, outcome, charged=charged, lost_node=lost_node)
        self.abort_if(self._budgets.fail_mini_batch(items))

    def _settle_failed(
        self, entry: Entry, outcome: Outcome, *, charged: bool, lost_node: int | None = None
    ) -> int:
        """Settle a mini-batch as failed, and return the number of its failed items."""
        self._patience.progress()
        self._tried = True
        self._pending.pop(entry.mini_batch.index, None)
        self._final.add(outcome.failure)
        items = outcome.total or entry.mini_batch.items or 1
        outcome = outcome._replace(total=items)
        self.tally.give_up(items)
        self.actions.append(
            FailAttempt(entry.mini_batch, outcome, final=True, charged=charged, lost_node=lost_node)
        )
        return items

    # ---- the job ----

    def judge_percent(self) -> None:
        """Judge the share of failed mini-batches, once all have been in a lease."""
        self.abort_if(self._budgets.judge_percent(self.tally.planned))

    def abort_if(self, why: str | None) -> None:
        """End the job as failed with the present headline, if there is a reason."""
        if why is not None:
            self.abort(why, self.headline)

    def abort(self, why: str, failure: Failure | None) -> None:
        """End the job as failed."""
        self._end(Abort(why, failure))

    def finish(self) -> None:
        """End the job as done."""
        self._end(Finish())

    def _end(self, action: Action) -> None:
        if not self.over:
            self.over = True
            self.actions.append(action)


def _lost(entry: Entry, slot: SlotId, losses: int) -> Outcome:
    message = (
        f"the worker {slot.worker} was lost while this was at work on it; that was loss {losses}. "
        "The mini-batch may be what ends them. max_node_losses says how many it may have."
    )
    return Outcome(
        index=entry.mini_batch.index,
        attempt=entry.attempt,
        status=Status.NODE_LOST,
        total=entry.mini_batch.items or 0,
        succeeded=0,
        started=0.0,
        elapsed_s=0.0,
        run_s=0.0,
        cpu_s=0.0,
        failure=Failure("NODE_LOST", message),
    )
