"""The end of a job, with its reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from daskprs._core.outcomes import Status
from daskprs.errors import LoadError

if TYPE_CHECKING:
    from daskprs._core.actions import OptionValues
    from daskprs._core.outcomes import Failure

INPUT_HAS_CHANGED = "a file of its input has changed since it began"
"""The reason of a job that failed because its input changed."""
KINDS_NAMED = 5
EXIT_USAGE, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_CANCELED = 2, 42, 75, 130


class JobStatus(StrEnum):
    """The final status of a job."""

    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELED = "Canceled"
    INTERRUPTED = "Interrupted"


EXIT_CODES: dict[str, int] = {
    JobStatus.COMPLETED: 0,
    JobStatus.FAILED: EXIT_FAILED,
    JobStatus.CANCELED: EXIT_CANCELED,
    JobStatus.INTERRUPTED: EXIT_INTERRUPTED,
}
"""The exit code of a driver's process, by the status of its job."""


@dataclass(slots=True)
class Kinds:
    """Number of errors of each class, and the first error of each."""

    counts: Counter[str] = field(default_factory=Counter)
    _firsts: dict[str, Failure] = field(default_factory=dict)

    def add(self, failure: Failure | None) -> None:
        """Count an error."""
        if failure is not None:
            self._firsts.setdefault(failure.kind, failure)
            self.counts[failure.kind] += 1

    @property
    def first(self) -> Failure | None:
        """The first error of all."""
        return next(iter(self._firsts.values()), None)

    @property
    def commonest(self) -> Failure | None:
        """The first error of the most frequent class; of several such classes, the first one."""
        return max(self._firsts.values(), key=lambda one: self.counts[one.kind], default=None)

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
    """One for each mini-batch that succeeded in a retry: its first error."""
    pending: Kinds
    """One for each mini-batch that waits for another attempt: its first error."""
    starts: Kinds
    """One for each process that did not start."""


class Ending(NamedTuple):
    """The status of a job, and the reason if it is not Completed."""

    status: JobStatus
    reason: str = ""
    """The limit that was exceeded, or the problem that ended the job."""
    failure: Failure | None = None
    """The error that counts: the first one of the class that failed most mini-batches, the error
    of all starts, or the change of the input."""
    errors: Errors | None = None
    again: OptionValues = ()
    """As `Interrupt.again`."""
    has_rest: bool = False
    """Whether the output is published, beside files of an earlier one."""

    @property
    def to_mend(self) -> str:
        """The part of the job whose mending may help, as of `accept_changes`; empty if none is."""
        if self.failure is None or self.of_changed_input:
            return ""
        return "input" if self.failure.kind == LoadError.__name__ else "script"

    @property
    def of_changed_input(self) -> bool:
        """Whether a file of the input has changed during the job."""
        return self.failure is not None and self.failure.kind == Status.INPUT_CHANGED.value
