"""The endpoint: the paths that it serves, and the action of each request."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Body, Header, Query, Request, Security
from fastapi import Path as InPath
from fastapi.responses import Response, StreamingResponse
from fastapi.security import HTTPBearer

from daskprs.core.ending import EXIT_USAGE
from daskprs.serve.bodies import (
    JSON,
    Counted,
    Defaults,
    EndpointAnswer,
    ErrorAnswer,
    ErrorBody,
    FilesAnswer,
    JobAnswer,
    JobProperties,
    JobRequest,
    JobRequestProperties,
    JobsAnswer,
    SystemData,
)
from daskprs.serve.deployment import HEADER
from daskprs.serve.http_errors import Refusal
from daskprs.serve.job_files import SentFile, followed, listed, opened
from daskprs.serve.served_job import CANCELED, FAILED, LIVE, RequestedJob

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import BaseModel

    from daskprs.serve.allowed_paths import Roots
    from daskprs.serve.deployment import Deployments
    from daskprs.serve.job_queue import JobQueue
    from daskprs.serve.served_job import ServedJob, ServedStatus

JOB_TYPE = "daskprs/batchEndpoint/jobs"
NAME_PATTERN = r"^[A-Za-z0-9-]{1,100}$"
MOST_SHOWN = 1000
BEARER = HTTPBearer(auto_error=False, description="A token that the operator gave you.")
"""For the description only: the gate has checked the token."""
FAILURES: dict[int, str] = {
    400: "The request is malformed.",
    401: "No token, or one that does not count here.",
    403: "A place outside the folders that the operator named.",
    404: "No such job, file, place or deployment.",
    408: "The body came too slowly.",
    409: "The job is not in a state for this.",
    413: "The body is too large.",
    429: "Too many jobs are waiting.",
    503: "The service cannot write to its disk.",
}
TEXT = {"content": {"text/plain": {"schema": {"type": "string"}}}}
OCTETS = {
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
}

JobName = Annotated[str, InPath(pattern=NAME_PATTERN, description="The name of a job.")]
FilePath = Annotated[str, InPath(description="A path from a listing.")]
Chosen = Annotated[str | None, Header(alias=HEADER, max_length=256)]


class Endpoint:
    """Deployments behind one address.

    Callers may read in the folders `inputs`, and write to `outputs`. Streams that follow a job stop
    when the service `is_ending`.
    """

    def __init__(
        self,
        name: str,
        deployments: Deployments,
        inputs: Roots,
        outputs: Roots,
        queue: JobQueue,
        is_ending: Callable[[], bool],
    ) -> None:
        self.name = name
        self._deployments = deployments
        self._inputs = inputs
        self._outputs = outputs
        self._queue = queue
        self._is_ending = is_ending
        self.router = APIRouter(dependencies=[Security(BEARER)])
        self._add("/", self.endpoint, [], EndpointAnswer)
        self._add("/jobs", self.jobs, [404], JobsAnswer)
        self._add("/jobs", self.invoke, [403, 404, 429, 503], JobAnswer, "POST")
        self._add("/jobs/{name}", self.job, [404], JobAnswer)
        self._add("/jobs/{name}/cancel", self.cancel, [404, 503], JobAnswer, "POST")
        self._add("/jobs/{name}/resume", self.resume, [404, 409, 429, 503], JobAnswer, "POST")
        self._add("/jobs/{name}/stream", self.stream, [404], TEXT)
        self._add("/jobs/{name}/outputs", self.outputs, [404], FilesAnswer)
        self._add("/jobs/{name}/outputs/{path:path}", self.outputs_file, [404], OCTETS)
        self._add("/jobs/{name}/logs", self.logs, [404], FilesAnswer)
        self._add("/jobs/{name}/logs/{path:path}", self.logs_file, [404], OCTETS)

    def _add(
        self,
        path: str,
        act: Callable[..., Response],
        failures: list[int],
        answer: type[BaseModel] | dict[str, Any],
        method: str = "GET",
    ) -> None:
        """Add a path with its errors, and with the form of its answer or a description of it."""
        responses: dict[int | str, dict[str, Any]] = {
            status: {"model": ErrorAnswer, "description": FAILURES[status]}
            for status in sorted([400, 401, 408, 413, *failures])
        }
        if isinstance(answer, dict):
            responses[200] = answer
        self.router.add_api_route(
            path,
            act,
            methods=[method],
            status_code=202 if method == "POST" else 200,
            responses=responses,
            operation_id=act.__name__,
            response_model=None if isinstance(answer, dict) else answer,
            response_class=Response if isinstance(answer, dict) else JSON,
        )

    def endpoint(self, request: Request) -> Response:
        """Show the endpoint, its deployments, and which is the default."""
        return JSON(
            EndpointAnswer(
                name=self.name,
                scoringUri=f"{str(request.base_url).rstrip('/')}/jobs",
                authMode="aadToken",
                defaults=Defaults(deploymentName=self._deployments.default),
                deployments=self._deployments.names,
            )
        )

    # ---- jobs ----

    def invoke(
        self, request: Request, asked: Annotated[JobRequest, Body()], deployment: Chosen = None
    ) -> Response:
        """Invoke the default deployment, or the one that the header names."""
        wanted, chosen = asked.properties, self._deployments.chosen(deployment)
        data, (output_dir, file_name) = self._data(wanted), self._output(wanted)
        overrides = wanted.overrides()
        if file_name is not None:
            overrides["settings.output_file_name"] = file_name

        def accepted(name: str, created: str, folder: Path) -> RequestedJob:
            place = output_dir or str(folder / "output")
            return RequestedJob(
                name=name,
                deployment=chosen.name,
                created=created,
                caller=request.state.caller,
                inputs={key: _texts(one.model_dump()) for key, one in wanted.InputData.items()},
                outputs={key: _texts(one.model_dump()) for key, one in wanted.OutputData.items()},
                overrides=overrides,
                words=chosen.words(data, wanted.literals(), folder / "job", place, overrides),
                output_dir=place,
                labels=wanted.labels(),
            )

        return self._accepted(self._queue.submit(accepted), is_detailed=False)

    def _data(self, wanted: JobRequestProperties) -> dict[str, str]:
        """Return the paths of the data inputs by name."""
        return {
            name: str(
                self._inputs.existing(
                    one.Uri,
                    folder=one.JobInputType == "UriFolder",
                    target=f"properties.InputData.{name}.Uri",
                )
            )
            for name, one in wanted.places()
        }

    def _output(self, wanted: JobRequestProperties) -> tuple[str | None, str | None]:
        """Return the output folder and the name of the output file, each None if not given."""
        for name, one in wanted.OutputData.items():
            is_folder = one.JobOutputType == "UriFolder"
            target = f"properties.OutputData.{name}.Uri"
            place = self._outputs.new(one.Uri, folder=is_folder, target=target)
            return (str(place), None) if is_folder else (str(place.parent), place.name)
        return None, None

    def jobs(
        self,
        top: Annotated[int, Query(alias="$top", ge=1, le=MOST_SHOWN)] = 100,
        skip: Annotated[str | None, Query(alias="$skip", pattern=NAME_PATTERN)] = None,
        deployment: Chosen = None,
    ) -> Response:
        """List the newest jobs; `nextLink` leads to older ones."""
        jobs, more = self._queue.listed(top, skip)
        shown = [job for job in jobs if deployment in {None, job.asked.deployment}]
        answers = [self._answer(job, is_detailed=False) for job in shown]
        link = None if more is None else f"/jobs?$top={top}&$skip={quote(more)}"
        return JSON(JobsAnswer(value=answers, nextLink=link))

    def job(self, name: JobName) -> Response:
        """Show how a job is."""
        return JSON(self._answer(self._queue.get(name)))

    def cancel(self, name: JobName) -> Response:
        """End a job; what it has done is kept. One that has ended stays as it is."""
        job = self._queue.get(name)
        self._queue.cancel(job)
        return self._accepted(job)

    def resume(self, name: JobName) -> Response:
        """Go on with a job that failed, was canceled or died: what it has done is not redone."""
        job = self._queue.get(name)
        self._queue.resume(job)
        return self._accepted(job)

    def _accepted(self, job: ServedJob, *, is_detailed: bool = True) -> Response:
        answer = self._answer(job, is_detailed=is_detailed)
        return JSON(answer, 202, {"Location": answer.id})

    def _answer(self, job: ServedJob, *, is_detailed: bool = True) -> JobAnswer:
        """Return the status of a job; in detail, with the counts from its folder."""
        status, asked = self._queue.status(job), job.asked
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
                canResume=status.status in {FAILED, CANCELED},
                error=_error(job, status) if is_detailed else None,
                **(_counts(job, status) if is_detailed else {}),
                **asked.labels,  # type: ignore[arg-type]
            ),
            systemData=SystemData(createdAt=asked.created, createdBy=asked.caller),
        )

    # ---- files ----

    def stream(
        self,
        name: JobName,
        follow: Annotated[bool, Query(description="Until the job has ended.")] = True,  # noqa: FBT002 - of HTTP
    ) -> Response:
        """Stream what the job's process writes."""
        output = self._queue.get(name).driver_output

        def goes_on() -> bool:
            return follow and not self._is_ending() and self._is_live(name)

        return StreamingResponse(followed(output, goes_on), media_type="text/plain")

    def _is_live(self, name: str) -> bool:
        """Say whether a job waits or runs."""
        try:
            return self._queue.status(self._queue.get(name)).status in LIVE
        except Refusal:  # its folder was removed
            return False

    def outputs(self, name: JobName) -> Response:
        """List the files that a job has made."""
        return JSON(listed(self._output_dir(name)))

    def outputs_file(self, name: JobName, path: FilePath) -> Response:
        """Fetch a file that a job has made."""
        return _sent(opened(self._output_dir(name), path))

    def _output_dir(self, name: str) -> Path:
        return Path(self._queue.get(name).asked.output_dir)

    def logs(self, name: JobName) -> Response:
        """List the log files of a job."""
        return JSON(listed(self._queue.get(name).job.logs))

    def logs_file(self, name: JobName, path: FilePath) -> Response:
        """Fetch a log file of a job."""
        return _sent(opened(self._queue.get(name).job.logs, path))


def _sent(file: IO[bytes]) -> Response:
    return SentFile(
        file,
        media_type="application/octet-stream",
        headers={"X-Content-Type-Options": "nosniff", "Content-Disposition": "attachment"},
    )


def _counts(job: ServedJob, status: ServedStatus) -> dict[str, Any]:
    """Return the counts of mini-batches and of items, unless they cannot be read now."""
    state = None
    with suppress(OSError):
        state = job.job_state(is_over=status.status not in LIVE)
    if state is None:
        return {}
    return {
        "miniBatches": Counted(**state.mini_batches._asdict()),
        "items": Counted(**state.items._asdict()),
    }


def _error(job: ServedJob, status: ServedStatus) -> ErrorBody | None:
    if status.status != FAILED:
        return None
    if status.died:
        message = (
            "The job's process died, or its machine did, without a recorded end. Its finished "
            f"work is kept: POST /jobs/{job.asked.name}/resume resumes it.\n{job.last_words()}"
        )
        return ErrorBody(code="JobDied", message=message)
    code = "JobRefused" if job.exit_code() == EXIT_USAGE else "JobFailed"
    return ErrorBody(code=code, message=job.last_words())


def _texts(values: dict[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items()}
