"""The counts of a job."""

from __future__ import annotations

from dataclasses import dataclass

from daskprs.core.events import Counts, Standing


@dataclass(slots=True)
class Tally:
    """Counts mini-batches and items; empty ranges count nowhere."""

    planned: int = 0
    """Mini-batches drawn from the plan, without the empty ones that are known as such."""
    plan_complete: bool = False
    succeeded: int = 0
    given_up: int = 0
    items: int = 0
    items_succeeded: int = 0
    items_failed: int = 0
    recovered: int = 0
    drawn: int = 0
    """All that were drawn from the plan."""

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
        """Count a successful attempt no more: what it made could not be kept."""
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

    def standing(self, *, expected: int | None, running: int, waiting: int) -> Standing:
        """Return the counts together with what is under way."""
        return Standing(
            mini_batches=Counts(self.planned, self.succeeded, self.given_up),
            items=Counts(self.items, self.items_succeeded, self.items_failed),
            plan_complete=self.plan_complete,
            expected=expected,
            running=running,
            waiting=waiting,
            recovered=self.recovered,
        )
