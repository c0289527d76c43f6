"""The endpoint: the action of each request, without HTTP."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from daskprs.serve.deployment import InvocationRequest
from daskprs.serve.http_errors import Refusal
from daskprs.serve.responses import (
    Counted,
    Defaults,
    EndpointAnswer,
    ErrorBody,
    JobAnswer,
    JobProperties,
    JobsAnswer,
    SystemData,
)
from daskprs.serve.served_job import FAILED, LIVE, RequestedJob

if TYPE_CHECKING:
    from daskprs.core.events import Counts
    from daskprs.serve.allowed_paths import Roots
    from daskprs.serve.deployment import Deployments
    from daskprs.serve.job_queue import JobQueue
    from daskprs.serve.job_request import JobRequestProperties as AskedProperties
    from daskprs.serve.served_job import ServedJob, ServedStatus

JOB_TYPE = "daskprs/batchEndpoint/jobs"
OUTPUT = "score"
"""Azure's name for the output of a model deployment."""


class Endpoint(NamedTuple):
    """Deployments behind one address."""

    name: str
    deployments: Deployments
    inputs: Roots
    outputs: Roots
    registry: JobQueue

    def told(self, base: str) -> EndpointAnswer:
        """Return the description of the endpoint."""
        return EndpointAnswer(
            name=self.name,
            scoringUri=f"{base}/jobs",
            authMode="aadToken",
            defaults=Defaults(deploymentName=self.deployments.default),
            deployments=self.deployments.names,
        )

    # ---- jobs ----

    def invoke(self, asked: AskedProperties, deployment: str | None, caller: str) -> JobAnswer:
        """Accept a job.

        Raises
        ------
        Refusal
            When no deployment has that name, or the caller may not use a place.

        """
        chosen = self.deployments.chosen(deployment)
        data = {
            name: str(self._input(one.Uri, folder=one.JobInputType == "UriFolder", name=name))
            for name, one in asked.places()
        }
        overrides, (output_dir, file_name) = asked.overrides(), self._output(asked)
        if file_name is not None:
            overrides["settings.output_file_name"] = file_name

        def accepted(name: str, created: str, folder: Path) -> RequestedJob:
            place = output_dir or str(folder / "output")
            invocation = InvocationRequest(data, asked.literals(), folder / "job", place, overrides)
            return RequestedJob(
                name=name,
                deployment=chosen.name,
                created=created,
                caller=caller,
                inputs={key: _texts(one.model_dump()) for key, one in asked.InputData.items()},
                outputs={key: _texts(one.model_dump()) for key, one in asked.OutputData.items()},
                overrides=overrides,
                words=chosen.words(invocation),
                output_dir=place,
                labels=asked.labels(),
            )

        return self.job(self.registry.submit(accepted), is_detailed=False)

    def _input(self, uri: str, *, folder: bool, name: str) -> Path:
        return self.inputs.existing(uri, folder=folder, target=f"properties.InputData.{name}.Uri")

    def _output(self, asked: AskedProperties) -> tuple[str | None, str | None]:
        """Return the output folder and the name of the output file, each None if not given."""
        for name, one in asked.OutputData.items():
            is_folder = one.JobOutputType == "UriFolder"
            target = f"properties.OutputData.{name}.Uri"
            place = self.outputs.new(one.Uri, folder=is_folder, target=target)
            return (str(place), None) if is_folder else (str(place.parent), place.name)
        return None, None

    def job(self, job: ServedJob, *, is_detailed: bool = True) -> JobAnswer:
        """Return the status of a job; in detail, with the counts from its folder."""
        status, asked = self.registry.status(job), job.asked
        counts = _counts(job, status) if is_detailed else None
        return JobAnswer(
            id=f"/jobs/{asked.name}",
            name=asked.name,
            type=JOB_TYPE,
            properties=JobProperties(
                status=status.status,  # type: ignore[arg-type]
                deployment=asked.deployment,
                InputData=asked.inputs,
                OutputData=asked.outputs,
                overrides=asked.overrides,
                canResume=status.status in {FAILED, "Canceled"},
                error=_error(job, status) if is_detailed else None,
                miniBatches=None if counts is None else Counted(**counts[0]._asdict()),
                items=None if counts is None else Counted(**counts[1]._asdict()),
                **asked.labels,
            ),
            systemData=SystemData(createdAt=asked.created, createdBy=asked.caller),
        )

    def jobs(self, top: int, skip: str | None, deployment: str | None) -> JobsAnswer:
        """Return the newest jobs, of one deployment or of all."""
        jobs, more = self.registry.listed(top, skip)
        shown = [job for job in jobs if deployment in {None, job.asked.deployment}]
        answers = [self.job(job, is_detailed=False) for job in shown]
        link = None if more is None else f"/jobs?$top={top}&$skip={quote(more)}"
        return JobsAnswer(value=answers, nextLink=link)

    def output_dir(self, name: str) -> Path:
        """Return the output folder of a job.

        Raises
        ------
        Refusal
            When no job has that name.

        """
        return Path(self.registry.get(name).asked.output_dir)

    def is_live(self, name: str) -> bool:
        """Say whether a job waits or runs."""
        try:
            return self.registry.status(self.registry.get(name)).status in LIVE
        except Refusal:  # its folder was removed
            return False


def _counts(job: ServedJob, status: ServedStatus) -> tuple[Counts, Counts] | None:
    """Return the counts of mini-batches and of items; None when they cannot be read now."""
    with suppress(OSError):
        state = job.job_state(is_over=status.status not in LIVE)
        return None if state is None else (state.mini_batches, state.items)
    return None


def _error(job: ServedJob, status: ServedStatus) -> ErrorBody | None:
    if status.status != FAILED:
        return None
    if status.died:
        told = (
            "The job's process died, or its machine did, before it told an end. What it has done "
            f"is kept: POST /jobs/{job.asked.name}/resume goes on with it.\n{job.last_words()}"
        )
        return ErrorBody(code="JobDied", message=told)
    code = "JobRefused" if job.exit_code() == 2 else "JobFailed"  # noqa: PLR2004 - bad usage
    return ErrorBody(code=code, message=job.last_words())


def _texts(values: dict[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items()}
