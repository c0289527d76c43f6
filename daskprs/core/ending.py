"""How a job came to its end."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from daskprs.core.outcomes import Status

if TYPE_CHECKING:
    from daskprs.core.outcomes import Failure

INPUT_HAS_CHANGED = "a file of its input has changed since it began"
"""Why such a job is Failed."""


class JobStatus(StrEnum):
    """What a job is called in the end."""

    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELED = "Canceled"


class Ending(NamedTuple):
    """The status, and why it is not Completed."""

    status: JobStatus
    reason: str = ""
    """What was exceeded or went wrong."""
    failure: Failure | None = None
    """The script's own first error, or what a change of the input is."""

    @property
    def of_changed_input(self) -> bool:
        """Whether a file of the input has changed during the job."""
        return self.failure is not None and self.failure.kind == Status.INPUT_CHANGED.value
