"""Error budgets: how much may fail before the job does."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from daskprs.core.limits import Limits

IGNORED = -1


@dataclass(slots=True)
class Budgets:
    """Counts final failures, and says on the very one that is too many what was exceeded."""

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
