"""The state of a pipeline's run according to its folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs.core.ending import JobStatus
from daskprs.folders.pipeline_folder import read_record
from daskprs.job.result import RUNNING
from daskprs.job.status import DIED
from daskprs.system.file_lock import holder_of

if TYPE_CHECKING:
    from daskprs.folders.pipeline_folder import PipelineFolder


class PipelineState(NamedTuple):
    """The state of a pipeline's run."""

    status: str
    """As that of a job."""
    holder: str | None
    """The process that runs it."""
    steps: dict[str, str]
    """The status of each step."""

    def record(self, folder: PipelineFolder) -> dict[str, Any]:
        """Return the state as JSON values."""
        steps = {
            name: {"status": status, "folder": str(folder.step(name))}
            for name, status in self.steps.items()
        }
        return {**self._asdict(), "steps": steps, "pipeline": str(folder)}


def pipeline_state_of(folder: PipelineFolder) -> PipelineState | None:
    """Return the state of the run in a folder; None where no pipeline has run.

    Raises
    ------
    JobFolderError
        When the record of the run cannot be read.

    """
    holder = _holder(folder)  # first, so that the last record is read
    record = read_record(folder)
    if record is None:
        return None
    steps = {name: one["status"] for name, one in record.items()}
    return PipelineState(_status(holder, set(steps.values())), holder, steps)


def _holder(folder: PipelineFolder) -> str | None:
    try:
        return holder_of(folder.lock)
    except OSError:
        return None


def _status(holder: str | None, of_steps: set[str]) -> str:
    if holder is not None:
        return RUNNING
    if of_steps == {JobStatus.COMPLETED.value}:
        return JobStatus.COMPLETED.value
    if RUNNING not in of_steps:
        for status in (JobStatus.FAILED.value, JobStatus.CANCELED.value):
            if status in of_steps:
                return status
    return DIED
