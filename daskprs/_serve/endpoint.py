"""The endpoint: the paths that it serves, and the action of each request."""

from __future__ import annotations

import asyncio
import json
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Body, Header, Query, Request, Security
from fastapi import Path as InPath
from fastapi.responses import Response, StreamingResponse
from fastapi.security import HTTPBearer
from starlette.convertors import PathConvertor, register_url_convertor

from daskprs._core.ending import EXIT_USAGE
from daskprs._folders.job_folder import JobFolder
from daskprs._serve.bodies import (
    JSON,
    NAME_PATTERN,
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
    ListedJob,
    ListedProperties,
    OfPlan,
    SystemData,
)
from daskprs._serve.deployment import HEADER, ServedCall
from daskprs._serve.http_errors import Refusal, not_found
from daskprs._serve.job_files import Followers, folders_in, listed, opened
from daskprs._serve.job_queue import REQUEST_ID
from daskprs._serve.sent_file import answer_with
from daskprs._serve.served_job import (
    CANCELED,
    FAILED,
    INTERRUPTED,
    LIVE,
    RequestedJob,
    SentRequest,
)
from daskprs._system.stores import plain_address
from daskprs.azure._pipeline_folder import USER_LOGS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from pydantic import BaseModel

    from daskprs._serve.allowed_paths import Roots
    from daskprs._serve.deployment import Deployments
    from daskprs._serve.job_queue import JobQueue
    from daskprs._serve.served_job import ServedJob, ServedStatus
    from daskprs._serve.web_input import WebFile, WebHosts

JOB_TYPE = "daskprs/batchEndpoint/jobs"
MOST_SHOWN = 1000
LISTING_THREADS = 2
INVOKING_THREADS = 4
BEARER = HTTPBearer(auto_error=False, description="A token that the operator gave you.")
"""For the description only: the gate has checked the token."""
FAILURES: dict[int, str] = {
    400: "The request is malformed.",
    401: "No token, or one that does not count here.",
    403: "A place outside the folders that the operator named, or a role that the token lacks.",
    404: "No such job, file, place or deployment.",
    408: "The body came too slowly.",
    409: "The job is not in a state for this; or its name, its output or its request is taken.",
    413: "The body is too large.",
    416: "The file has no such part.",
    429: "Too many jobs are waiting, or too many requests came.",
    503: "The service cannot write to its disk, or is about to end.",
}
TEXT: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}}
}
BINARY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
OCTETS: dict[int | str, dict[str, Any]] = {
    200: {"content": BINARY},
    206: {"content": BINARY, "description": "The part that the header Range asks for."},
    304: {"description": "The caller has it: as If-None-Match or If-Modified-Since says."},
}

JobName = Annotated[str, InPath(pattern=NAME_PATTERN, description="The name of a job.")]
FilePath = Annotated[str, InPath(description="A path from a listing.")]
Chosen = Annotated[str | None, Header(alias=HEADER, max_length=256)]
OF_A_REQUEST = "The client's own name for the request, the same in each of its tries."
RequestId = Annotated[
    str | None, Header(alias=REQUEST_ID, max_length=256, description=OF_A_REQUEST)
]
OtherRequestId = Annotated[
    str | None, Header(alias="repeatability-request-id", max_length=256, description=OF_A_REQUEST)
]
OF_TAG = "Jobs with this tag: `name`, or `name=value`."
HOST = re.compile(r"(?:[A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")


class AnyPath(PathConvertor):
    """The path of a file in a route, which may have line breaks."""

    regex = "(?s:.*)"


register_url_convertor("file", AnyPath())


class Endpoint:
    """Deployments behind one address.

    Callers may read in the folders `inputs`, and write to `outputs`. They may have files fetched
    from `web_hosts`, and reach the service at `public_url`, if it is given.
    """

    def __init__(
        self,
        name: str,
        deployments: Deployments,
        inputs: Roots,
        outputs: Roots,
        queue: JobQueue,
        web_hosts: WebHosts,
        public_url: str | None = None,
    ) -> None:
        self.name = name
        self._deployments = deployments
        self._inputs = inputs
        self._outputs = outputs
        self._queue = queue
        self._followers = Followers()
        self._listings = ThreadPoolExecutor(LISTING_THREADS, "daskprs-list")
        self._invocations = ThreadPoolExecutor(INVOKING_THREADS, "daskprs-invoke")
        """Threads of their own: an input folder may have any number of files, which are looked at
        for links. No other request waits for them."""
        self._public_url = public_url
        self._web_hosts = web_hosts
        self.router = APIRouter(dependencies=[Security(BEARER)])
        self._add("/", self.endpoint, [], EndpointAnswer)
        self._add("/jobs", self.jobs, [404], JobsAnswer)
        self._add("/jobs", self.invoke, [403, 404, 409, 429, 503], ListedJob, "POST", 201)
        self._add("/jobs/{name}", self.job, [404], JobAnswer)
        self._add("/jobs/{name}/cancel", self.cancel, [404, 503], JobAnswer, "POST")
        self._add("/jobs/{name}/resume", self.resume, [404, 409, 429, 503], JobAnswer, "POST")
        self._add("/jobs/{name}/stream", self.stream, [404], TEXT)
        self._add("/jobs/{name}/outputs", self.outputs, [404], FilesAnswer)
        for method in ("GET", "HEAD"):
            files = "/jobs/{name}/outputs/{path:file}"
            self._add(files, self.outputs_file, [404, 416], OCTETS, method)
            self._add("/jobs/{name}/logs/{path:file}", self.logs_file, [404, 416], OCTETS, method)
        self._add("/jobs/{name}/logs", self.logs, [404], FilesAnswer)

    def _add(
        self,
        path: str,
        act: Callable[..., Response | Awaitable[Response]],
        failures: list[int],
        answer: type[BaseModel] | dict[int | str, dict[str, Any]],
        method: str = "GET",
        status: int | None = None,
    ) -> None:
        """Add a path with its errors, and with the form of its answer or a description of it."""
        responses: dict[int | str, dict[str, Any]] = {
            status: {"model": ErrorAnswer, "description": FAILURES[status]}
            for status in sorted({400, 401, 403, 408, 413, 429, *failures})
        }
        if isinstance(answer, dict):
            responses |= answer
        self.router.add_api_route(
            path,
            act,
            methods=[method],
            status_code=status or (202 if method == "POST" else 200),
            responses=responses,
            operation_id=f"head_{act.__name__}" if method == "HEAD" else act.__name__,
            response_model=None if isinstance(answer, dict) else answer,
            response_class=Response if isinstance(answer, dict) else JSON,
        )

    def endpoint(self, request: Request) -> Response:
        """Show the endpoint, its deployments, and which is the default."""
        return JSON(
            EndpointAnswer(
                name=self.name,
                scoringUri=f"{self._address(request)}/jobs",
                authMode="aadToken",
                defaults=Defaults(deploymentName=self._deployments.default),
                deployments=self._deployments.names,
                traffic=self._deployments.traffic,
            )
        )

    # ---- jobs ----

    async def invoke(
        self,
        request: Request,
        asked: Annotated[JobRequest, Body()],
        deployment: Chosen = None,
        request_id: RequestId = None,
        other_request_id: OtherRequestId = None,
    ) -> Response:
        """Invoke the default deployment, or the one that the header names.

        A request that is sent again with the same id gives the same job.
        """
        loop = asyncio.get_running_loop()
        given_id = request_id or other_request_id
        invoke = partial(self._invoke, request, asked, deployment, given_id)
        return await loop.run_in_executor(self._invocations, invoke)

    def _invoke(
        self, request: Request, asked: JobRequest, deployment: str | None, given_id: str | None
    ) -> Response:
        sent = given_id and SentRequest(request.state.caller, given_id, _digest(asked, deployment))
        job = self._queue.sent_before(sent) if sent else None
        if job is None:
            job = self._submitted(request, asked.properties, deployment, sent or None)
        return _accepted(self._listed(job), 201)

    def _submitted(
        self,
        request: Request,
        wanted: JobRequestProperties,
        deployment: str | None,
        sent: SentRequest | None,
    ) -> ServedJob:
        if len(wanted.instance_counts()) > 1:
            message = "resources and compute have different numbers of nodes."
            raise Refusal(409, "InstanceCounts", message, target="properties.compute.instanceCount")
        chosen = self._deployments.chosen(deployment, sent and sent.id)
        web = self._web_files(wanted)
        call = self._call(wanted, web)
        chosen.refuse_unfit(call)
        labels = wanted.labels()
        tags = labels.pop("tags", {})

        def accepted(name: str, created: str, folder: Path) -> RequestedJob:
            data = {name: str(folder / place) for name, place in call.data.items()}
            planned = chosen.planned(call._replace(data=data), folder)
            return RequestedJob(
                name=name,
                deployment=chosen.name,
                created=created,
                caller=request.state.caller,
                inputs={key: _shown(one.model_dump()) for key, one in wanted.InputData.items()},
                outputs={key: _texts(one.model_dump()) for key, one in wanted.OutputData.items()},
                overrides=planned.overrides,
                words=planned.words,
                output_dir=str(planned.output_dir),
                labels=labels,
                tags=tags,
                places=planned.places,
                web=[one._replace(place=str(folder / one.place)) for one in web.values()],
            )

        return self._queue.submit(accepted, sent, wanted.name)

    def _web_files(self, wanted: JobRequestProperties) -> dict[str, WebFile]:
        """Return the inputs that are fetched, by name."""
        return {
            name: self._web_hosts.file(
                one.Uri, name, one.JobInputType, f"properties.InputData.{name}.Uri"
            )
            for name, one in wanted.places()
            if one.Uri.startswith("https://")
        }

    def _call(self, wanted: JobRequestProperties, web: Mapping[str, WebFile]) -> ServedCall:
        """Return an invocation with its places, which are looked for and allowed."""
        data = {
            name: web[name].place if name in web else self._input(name, one.Uri, one.JobInputType)
            for name, one in wanted.places()
        }
        outputs = wanted.OutputData.items()
        return ServedCall(
            data={name: str(place) for name, place in data.items()},
            kinds={name: one.JobInputType for name, one in wanted.places()},
            literals=wanted.literals(),
            outputs={name: self._output(name, one.Uri, one.JobOutputType) for name, one in outputs},
            is_file={name: one.JobOutputType == "UriFile" for name, one in outputs},
            overrides=wanted.overrides(),
        )

    def jobs(
        self,
        request: Request,
        top: Annotated[int, Query(alias="$top", ge=1, le=MOST_SHOWN)] = 100,
        skip: Annotated[str | None, Query(alias="$skip", pattern=NAME_PATTERN)] = None,
        tag: Annotated[str | None, Query(max_length=600, description=OF_TAG)] = None,
        deployment: Chosen = None,
    ) -> Response:
        """List the newest jobs; `nextLink` leads to older ones."""

        def is_shown(asked: RequestedJob) -> bool:
            return deployment in {None, asked.deployment} and (not tag or _has_tag(asked, tag))

        jobs, more = self._queue.listed(top, skip, is_shown)
        answers = [*map(self._listed, jobs)]
        query = {"$top": top, "$skip": more, **({"tag": tag} if tag else {})}
        link = f"{self._address(request)}/jobs?{urlencode(query, safe='$')}" if more else None
        return JSON(JobsAnswer(value=answers, nextLink=link))

    def job(self, name: JobName) -> Response:
        """Show how a job is."""
        return JSON(self._answer(self._queue.get(name)))

    def cancel(self, name: JobName) -> Response:
        """End a job; what it has done is kept. One that has ended stays as it is."""
        job = self._queue.get(name)
        self._queue.cancel(job)
        return _accepted(self._answer(job))

    def resume(self, name: JobName) -> Response:
        """Go on with a job that has ended before its work was done: nothing of it is done twice."""
        job = self._queue.get(name)
        self._refuse_withdrawn(job.asked)
        self._queue.resume(job)
        return _accepted(self._answer(job))

    def _refuse_withdrawn(self, asked: RequestedJob) -> None:
        """Refuse a job whose deployment or places the operator no longer allows."""
        if asked.deployment not in self._deployments.names:
            message = f"The deployment {asked.deployment!r} is no longer served."
            raise Refusal(409, "CannotResume", message, target="name")
        for file in asked.web:  # the address among the inputs has no query
            self._web_hosts.file(file.url, "", "UriFile", "properties.InputData")
        for name, one in asked.inputs.items():
            if not (uri := one.get("Uri", "https://")).startswith("https://"):
                self._input(name, uri, one["JobInputType"])
        for name, one in asked.outputs.items():
            self._output(name, one["Uri"], one.get("JobOutputType"))

    def _input(self, name: str, uri: str, kind: str) -> Path:
        return self._inputs.existing(uri, kind, target=f"properties.InputData.{name}.Uri")

    def _output(self, name: str, uri: str, kind: str | None) -> Path:
        target = f"properties.OutputData.{name}.Uri"
        return self._outputs.new(uri, folder=kind == "UriFolder", target=target)

    def _address(self, request: Request) -> str:
        """Return the address by which callers reach the service.

        That is the operator's, else the one that the request was sent to: a `Host` with anything
        but a name and a port is not repeated.
        """
        if self._public_url is not None:
            return self._public_url
        host = request.headers.get("host", "")
        if not HOST.fullmatch(host):
            name, port = request.scope["server"]
            host = f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
        return f"{request.url.scheme}://{host}"

    def _listed(self, job: ServedJob) -> ListedJob:
        """Return the status of a job."""
        properties = _properties(job.asked, self._queue.status(job))
        return ListedJob(**_named(job.asked), properties=properties)

    def _answer(self, job: ServedJob) -> JobAnswer:
        """Return the status of a job in detail, with the counts from its folder."""
        status = self._queue.status(job)
        properties = JobProperties(
            **dict(_properties(job.asked, status)),
            error=_error(job, status),
            **_counts(job, status),
        )
        return JobAnswer(**_named(job.asked), properties=properties)

    # ---- files ----

    def stream(
        self,
        name: JobName,
        follow: Annotated[bool, Query(description="Until the job has ended.")] = True,  # noqa: FBT002 - of HTTP
    ) -> Response:
        """Stream what the job's process writes."""
        output = self._queue.get(name).driver_output

        def goes_on() -> bool:
            return follow and not self._queue.is_draining and self._is_live(name)

        return StreamingResponse(self._followers.follow(output, goes_on), media_type="text/plain")

    def _is_live(self, name: str) -> bool:
        """Say whether a job waits or runs."""
        try:
            return self._queue.status(self._queue.get(name)).status in LIVE
        except Refusal:  # its folder was removed
            return False

    async def outputs(self, name: JobName) -> Response:
        """List the files that a job has made."""
        return await self._listing(lambda: listed(self._output_dir(name)))

    async def _listing(self, look: Callable[[], dict[str, Any]]) -> Response:
        """List files by threads for that alone: a job may have made any number of files."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._listings, lambda: JSON(look()))

    def outputs_file(self, request: Request, name: JobName, path: FilePath) -> Response:
        """Fetch a file that a job has made, or a part of it."""
        return answer_with(opened(self._output_dir(name), path), Path(path).name, request)

    def _output_dir(self, name: str) -> Path:
        """Return a job's output folder; refuse one outside, which a script may have recorded."""
        job = self._queue.get(name)
        folder = Path(job.asked.output_dir)
        if folder == job.folder / "output" or self._outputs.holds(folder):
            return folder
        raise not_found("output folder of job", name, "name")

    async def logs(self, name: JobName) -> Response:
        """List the log files of a job; those of a pipeline by step."""
        return await self._listing(lambda: listed(*_logs(self._queue.get(name))))

    def logs_file(self, request: Request, name: JobName, path: FilePath) -> Response:
        """Fetch a log file of a job, or a part of it."""
        folder, within = _logs(self._queue.get(name))
        return answer_with(opened(folder, path, within), Path(path).name, request)


def _accepted(answer: ListedJob, status: int = 202) -> Response:
    return JSON(answer, status, {"Location": answer.id})


def _named(asked: RequestedJob) -> dict[str, Any]:
    """Return what an answer says of a job beside its properties."""
    made = SystemData(createdAt=asked.created, createdBy=asked.caller)
    return {"id": f"/jobs/{asked.name}", "name": asked.name, "type": JOB_TYPE, "systemData": made}


def _properties(asked: RequestedJob, status: ServedStatus) -> ListedProperties:
    return ListedProperties(
        status=status.status,  # type: ignore[arg-type]
        deployment=asked.deployment,
        InputData=asked.inputs,
        OutputData=asked.outputs,
        overrides=asked.overrides,
        canResume=status.status in {FAILED, CANCELED, INTERRUPTED},
        tags=asked.tags,
        **asked.labels,
    )


def _logs(job: ServedJob) -> tuple[Path, list[Path] | None]:
    """Return a folder, and the folders in it that have the logs of a job; None for all.

    The folder of a pipeline's run holds more than logs.
    """
    run = job.run
    if run is None:
        return job.job.logs, None
    steps = [folder for folder in folders_in(run.path) if run.is_of_step(folder.name)]
    return run.path, [logs for step in steps for logs in (JobFolder(step).logs, step / USER_LOGS)]


def _counts(job: ServedJob, status: ServedStatus) -> dict[str, Any]:
    """Return the counts of mini-batches and of items, unless they are not known.

    They cannot be read now, or the job has died before it had settled anything: 0 would be taken
    for the number of its items.
    """
    state = None
    with suppress(OSError):
        state = job.job_state(is_over=status.status not in LIVE)
    if state is None or (status.died and not state.mini_batches.total):
        return {}
    return {
        "miniBatches": OfPlan.model_validate(state.counts_of_plan),
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
    if status.reason:
        return ErrorBody(code="JobFailed", message=status.reason)
    code = "JobRefused" if job.exit_code() == EXIT_USAGE else "JobFailed"
    return ErrorBody(code=code, message=job.last_words())


def _digest(asked: JobRequest, deployment: str | None) -> str:
    """Return the checksum of what a request asks for."""
    content = json.dumps([deployment, asked.model_dump()], sort_keys=True)
    return sha256(content.encode()).hexdigest()


def _has_tag(asked: RequestedJob, tag: str) -> bool:
    name, equals, value = tag.partition("=")
    return name in asked.tags and (not equals or asked.tags[name] == value)


def _shown(values: dict[str, object]) -> dict[str, str]:
    """Return an input for answers: a web address without its query."""
    found = _texts(values)
    is_web = found.get("Uri", "").startswith("https://")
    return {**found, "Uri": plain_address(found["Uri"])} if is_web else found


def _texts(values: dict[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items() if value is not None}
