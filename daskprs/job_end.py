"""The end of a job: a result that is returned, or carried by what is raised."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from daskprs.core.ending import JobStatus
from daskprs.errors import ParallelRunCanceled, ParallelRunFailed

if TYPE_CHECKING:
    from daskprs.result import ParallelRunResult


class JobEnd(NamedTuple):
    """What a job came to, settled before anybody is told: no interrupt changes it any more."""

    result: ParallelRunResult
    message: str

    @classmethod
    def early(cls, nothing: ParallelRunResult) -> JobEnd:
        """Return the end of a job that was interrupted while it was prepared."""
        return cls(nothing, "The job is Canceled: it was interrupted before the first mini-batch.")

    def told(self) -> ParallelRunResult:
        """Return the result of a job that is Completed.

        Raises
        ------
        ParallelRunFailed, ParallelRunCanceled
            With the result of any other.

        """
        match JobStatus(self.result.status):
            case JobStatus.COMPLETED:
                return self.result
            case JobStatus.CANCELED:
                raise ParallelRunCanceled(self.message, self.result)
            case JobStatus.FAILED:
                raise ParallelRunFailed(self.message, self.result)
