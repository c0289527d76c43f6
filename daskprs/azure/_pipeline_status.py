"""The folder of a pipeline's run as a joint folder of jobs, and the state of the run in it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._core.ending import JobStatus
from daskprs._job.frontend import accepting
from daskprs._job.result import RUNNING
from daskprs._job.status import DIED
from daskprs._system.file_lock import holder_of
from daskprs.azure._pipeline_folder import PipelineFolder, read_record
from daskprs.errors import JobFolderError

if TYPE_CHECKING:
    from pathlib import Path

    from daskprs._folders.joint_folder import JointState


class PipelineState(NamedTuple):
    """The state of a pipeline's run."""

    status: str
    """The status in the words of a job's status."""
    holder: str | None
    """The process that runs it."""
    steps: dict[str, str]
    """The status of each step."""


def resume_pipeline(job_dir: Path, accept: str = "", **_: Any) -> str:
    """Return the words that resume the pipeline of a step."""
    words = ["--resume", "--job-dir", str(job_dir.parent), *accepting(accept)]
    return f"run the pipeline again with {shlex.join(words)}"


class PipelineOnDisk(PipelineFolder):
    """The folder of a pipeline, with the answers of a `JointFolder`."""

    def state(self) -> PipelineState | None:
        """Return the state of the run; None where no pipeline has run.

        A record that cannot be read is a JobFolderError.
        """
        holder = _holder(self)  # first, so that the last record is read
        record = read_record(self)
        if record is None:
            return None
        steps = {name: one["status"] for name, one in record.items()}
        return PipelineState(_status(holder, set(steps.values())), holder, steps)

    def state_values(self, state: JointState) -> dict[str, Any]:
        """Return a state as JSON values."""
        steps = {
            name: {"status": status, "folder": str(self.step(name))}
            for name, status in state.steps.items()
        }
        told = {"status": state.status, "holder": state.holder}
        return {**told, "steps": steps, "pipeline": str(self)}

    def way_on(self, given: str) -> str:
        """Return how the pipeline goes on."""
        return (
            f"To go on with the pipeline, run its file again with --resume --job-dir {given}, or "
            "submit one of SDK v1 again: a parallel step that has a result gives that."
        )

    def way_on_of(self, job: Path) -> str | None:
        """Return how the job of a step goes on; a step of SDK v1 does so by itself."""
        try:
            steps = read_record(self) or {}
        except JobFolderError:  # it was made by another version, or this user may not read it
            return None
        return resume_pipeline(job) if "definition" in steps.get(job.name, {}) else None


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
        for status in (JobStatus.FAILED, JobStatus.CANCELED, JobStatus.INTERRUPTED):
            if status.value in of_steps:
                return status.value
    return DIED
