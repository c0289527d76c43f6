"""How a job came to its end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from daskprs.core.outcomes import Status

if TYPE_CHECKING:
    from daskprs.core.outcomes import Failure

INPUT_HAS_CHANGED = "a file of its input has changed since it began"
"""Why such a job is Failed."""
KINDS_NAMED = 5


class JobStatus(StrEnum):
    """What a job is called in the end."""

    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELED = "Canceled"


@dataclass(slots=True)
class Kinds:
    """Errors by their class, with the first of them."""

    first: Failure | None = None
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, failure: Failure | None) -> None:
        """Count an error."""
        if failure is not None:
            self.first = self.first or failure
            self.counts[failure.kind] += 1

    def __str__(self) -> str:
        """Return the counts, the most frequent class first."""
        named = self.counts.most_common(KINDS_NAMED)
        words = [f"{count:,} × {kind}" for kind, count in named]
        rest = self.counts.total() - sum(count for _, count in named)
        return ", ".join([*words, f"{rest:,} of other kinds"] if rest else words)


class Errors(NamedTuple):
    """The errors of a job, by what became of the mini-batches that had them."""

    final: Kinds
    """One for each mini-batch that was given up: the error of its last attempt."""
    mended: Kinds
    """One for each mini-batch that a retry has mended: its first error."""
    pending: Kinds
    """One for each mini-batch that waits for another attempt: its first error."""
    starts: Kinds
    """One for each process that did not come up."""


class Ending(NamedTuple):
    """The status, and why it is not Completed."""

    status: JobStatus
    reason: str = ""
    """What was exceeded or went wrong."""
    failure: Failure | None = None
    """The first error among mini-batches that failed in the end, or that of all starts, or what a
    change of the input is."""
    errors: Errors | None = None

    @property
    def of_changed_input(self) -> bool:
        """Whether a file of the input has changed during the job."""
        return self.failure is not None and self.failure.kind == Status.INPUT_CHANGED.value
