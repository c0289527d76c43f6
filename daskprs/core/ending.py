"""How a job came to its end."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from daskprs.core.outcomes import Failure


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
    """The script's own first error."""
