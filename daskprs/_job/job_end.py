"""The end of a job: the result that is returned, or the error that carries it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from daskprs._core.ending import JobStatus
from daskprs._core.events import Counts
from daskprs._job.result import ParallelRunResult
from daskprs._system.interrupts import Terminated
from daskprs.errors import ParallelRunCanceled, ParallelRunFailed, ParallelRunInterrupted

if TYPE_CHECKING:
    from pathlib import Path

    from daskprs._job.request import CheckedCall


NONE = Counts()


def status_by(error: BaseException) -> JobStatus:
    """Return the status of work that an error has ended."""
    if isinstance(error, (ParallelRunInterrupted, Terminated)):
        return JobStatus.INTERRUPTED
    return JobStatus.CANCELED if isinstance(error, KeyboardInterrupt) else JobStatus.FAILED


def result_of(
    call: CheckedCall,
    status: str,
    done: Counts = NONE,
    items: Counts = NONE,
    output: Path | str | None = None,
) -> ParallelRunResult:
    """Return the result of a job as of now; `output` is what was published."""
    return ParallelRunResult(
        status=status,
        mini_batches=done,
        items=items,
        output_file=output,
        output_dir=call.named_output_dir,
        logs_dir=call.folder.logs,
        job_dir=call.folder.path,
        elapsed_s=time.monotonic() - call.begun_s,
        unit=call.source.unit,
        is_trusted=call.options.trust,
    )


class JobEnd(NamedTuple):
    """The end of a job, fixed before it is reported: no interrupt changes it afterwards."""

    result: ParallelRunResult
    message: str

    @classmethod
    def early(cls, nothing: ParallelRunResult, why: str) -> JobEnd:
        """Return the end of a job that was interrupted while it was prepared."""
        why = why or "it was interrupted before the first mini-batch"
        return cls(nothing, f"The job is {nothing.status}: {why}.\nTo go on, call it again.")

    def told(self) -> ParallelRunResult:
        """Return the result of a completed job; raise that of any other job with its error."""
        if self.result.status == JobStatus.COMPLETED:
            return self.result
        raise ERRORS[JobStatus(self.result.status)](self.message, self.result)


ERRORS: dict[JobStatus, type[ParallelRunFailed | ParallelRunCanceled | ParallelRunInterrupted]] = {
    JobStatus.FAILED: ParallelRunFailed,
    JobStatus.CANCELED: ParallelRunCanceled,
    JobStatus.INTERRUPTED: ParallelRunInterrupted,
}
"""The error that carries the result of a job that is not Completed."""
