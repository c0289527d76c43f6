"""The service's web application: paths, methods, and their actions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Body, FastAPI, Header, Path, Query, Request, Security
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response, StreamingResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.routing import Match

from daskprs import __version__
from daskprs.serve.deployment import HEADER
from daskprs.serve.http_errors import Refusal
from daskprs.serve.job_files import SentFile, followed, listed, opened
from daskprs.serve.job_request import JobRequest  # noqa: TC001 - FastAPI looks at it
from daskprs.serve.page import page_of
from daskprs.serve.responses import (
    JSON,
    EndpointAnswer,
    ErrorAnswer,
    FilesAnswer,
    JobAnswer,
    JobsAnswer,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from daskprs.serve.endpoint import Endpoint

NO_PLACE = (
    "Name a file or folder of this service: /path, file:///path, or "
    "azureml://datastores/<name>/paths/<path>; neither a glob nor a URL of another store"
)
NO_JSON = "Send an object of JSON, with the header Content-Type: application/json"
NO_KEY = "There is no such key; GET /docs shows which there are"
NAME_PATTERN = r"^[A-Za-z0-9-]{1,100}$"
MOST_SHOWN = 1000
DESCRIPTION = """Runs batch deployments as jobs. Invoke one with `POST /jobs`, look at it with
`GET /jobs/{name}`, fetch what it made with `GET /jobs/{name}/outputs/{path}`."""
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

JobName = Annotated[str, Path(pattern=NAME_PATTERN, description="The name of a job.")]
FilePath = Annotated[str, Path(description="A path from a listing.")]


def application(endpoint: Endpoint, is_ending: Callable[[], bool]) -> FastAPI:
    """Return the application.

    Parameters
    ----------
    endpoint
        The endpoint to serve.
    is_ending
        Whether the service is ending, so that streams that follow a job stop.

    """
    app = FastAPI(
        title=f"daskprs batch endpoint {endpoint.name}",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={
            Refusal: _refused,
            HTTPException: _http,
            RequestValidationError: _invalid,
            Exception: _broken,
        },
    )
    router = Routes(endpoint, is_ending).router
    app.state.routes = router.routes
    app.include_router(router)

    @app.get("/docs", include_in_schema=False)
    def docs() -> HTMLResponse:
        return page_of(app.openapi())

    return app


def _failing(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the descriptions of the errors of a path."""
    return {one: {"model": ErrorAnswer, "description": FAILURES[one]} for one in sorted(statuses)}


class Routes:
    """The paths of an endpoint."""

    def __init__(self, endpoint: Endpoint, is_ending: Callable[[], bool]) -> None:
        self._endpoint = endpoint
        self._is_ending = is_ending
        self.router = APIRouter(dependencies=[Security(BEARER)])
        text = {"content": {"text/plain": {"schema": {"type": "string"}}}}
        octets = {
            "content": {
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
            }
        }
        job: dict[str, Any] = {"response_model": JobAnswer, "response_class": JSON}
        files: dict[str, Any] = {"response_model": FilesAnswer, "response_class": JSON}
        self._add("/", self.endpoint, [], response_model=EndpointAnswer, response_class=JSON)
        self._add("/jobs", self.jobs, [404], response_model=JobsAnswer, response_class=JSON)
        self._add("/jobs", self.invoke, [403, 404, 429, 503], "POST", 202, **job)
        self._add("/jobs/{name}", self.job, [404], **job)
        self._add("/jobs/{name}/cancel", self.cancel, [404, 503], "POST", 202, **job)
        resumed = [404, 409, 429, 503]
        self._add("/jobs/{name}/resume", self.resume, resumed, "POST", 202, **job)
        self._add("/jobs/{name}/stream", self.stream, [404], more=text, response_class=Response)
        for what in ("outputs", "logs"):
            list_files, get_file = getattr(self, what), getattr(self, f"{what}_file")
            self._add(f"/jobs/{{name}}/{what}", list_files, [404], **files)
            path = f"/jobs/{{name}}/{what}/{{path:path}}"
            self._add(path, get_file, [404], more=octets, response_class=Response)

    def _add(
        self,
        path: str,
        act: Callable[..., Any],
        failures: list[int],
        method: str = "GET",
        status: int = 200,
        more: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        responses = _failing(400, 401, 408, 413, *failures)
        self.router.add_api_route(
            path,
            act,
            methods=[method],
            status_code=status,
            responses={**responses, **({status: more} if more else {})},
            operation_id=act.__name__,
            **options,
        )

    # ---- the endpoint and its jobs ----

    def endpoint(self, request: Request) -> Response:
        """Show the endpoint, its deployments, and which is the default."""
        return JSON(self._endpoint.told(str(request.base_url).rstrip("/")))

    def invoke(
        self,
        request: Request,
        asked: Annotated[JobRequest, Body()],
        deployment: Annotated[str | None, Header(alias=HEADER, max_length=256)] = None,
    ) -> Response:
        """Invoke the default deployment, or the one that the header names."""
        caller = request.state.caller
        job = self._endpoint.invoke(asked.properties, deployment, caller)
        return JSON(job, 202, {"Location": job.id})

    def jobs(
        self,
        top: Annotated[int, Query(alias="$top", ge=1, le=MOST_SHOWN)] = 100,
        skip: Annotated[str | None, Query(alias="$skip", pattern=NAME_PATTERN)] = None,
        deployment: Annotated[str | None, Header(alias=HEADER, max_length=256)] = None,
    ) -> Response:
        """List the newest jobs; `nextLink` leads to older ones."""
        return JSON(self._endpoint.jobs(top, skip, deployment))

    def job(self, name: JobName) -> Response:
        """Show how a job is."""
        return JSON(self._endpoint.job(self._endpoint.registry.get(name)))

    def cancel(self, name: JobName) -> Response:
        """End a job; what it has done is kept. One that has ended stays as it is."""
        job = self._endpoint.registry.get(name)
        self._endpoint.registry.cancel(job)
        return JSON(self._endpoint.job(job), 202, {"Location": f"/jobs/{name}"})

    def resume(self, name: JobName) -> Response:
        """Go on with a job that failed, was canceled or died: what it has done is not redone."""
        job = self._endpoint.registry.get(name)
        self._endpoint.registry.resume(job)
        return JSON(self._endpoint.job(job), 202, {"Location": f"/jobs/{name}"})

    # ---- files ----

    def stream(
        self,
        name: JobName,
        follow: Annotated[bool, Query(description="Until the job has ended.")] = True,  # noqa: FBT002 - of HTTP
    ) -> Response:
        """Stream what the job's process writes."""
        job = self._endpoint.registry.get(name)

        def goes_on() -> bool:
            return follow and not self._is_ending() and self._endpoint.is_live(name)

        chunks = followed(job.driver_output, goes_on)
        return StreamingResponse(chunks, media_type="text/plain")

    def outputs(self, name: JobName) -> Response:
        """List the files that a job has made."""
        return JSON(listed(self._endpoint.output_dir(name)))

    def outputs_file(self, name: JobName, path: FilePath) -> Response:
        """Fetch a file that a job has made."""
        return _sent(opened(self._endpoint.output_dir(name), path))

    def logs(self, name: JobName) -> Response:
        """List the log files of a job."""
        return JSON(listed(self._endpoint.registry.get(name).job.logs))

    def logs_file(self, name: JobName, path: FilePath) -> Response:
        """Fetch a log file of a job."""
        return _sent(opened(self._endpoint.registry.get(name).job.logs, path))


def _sent(file: Any) -> Response:
    return SentFile(
        file,
        media_type="application/octet-stream",
        headers={"X-Content-Type-Options": "nosniff", "Content-Disposition": "attachment"},
    )


# ---- errors ----


async def _refused(request: Request, error: Any) -> Response:
    del request
    return JSON(error.body, error.status, error.headers)


async def _http(request: Request, error: Any) -> Response:
    """Answer requests that the framework rejects: unknown path or method, body not JSON."""
    code = {404: "NotFound", 405: "MethodNotAllowed"}.get(error.status_code, "BadRequest")
    headers = dict(error.headers or {})
    if error.status_code == 405:  # noqa: PLR2004 - the framework knows the first route only
        headers["Allow"] = ", ".join(_methods(request))
    told = f"{request.method} {request.url.path}: {error.detail}."
    return await _refused(request, Refusal(error.status_code, code, told, headers=headers))


def _methods(request: Request) -> list[str]:
    """Return the methods allowed on the path of a request."""
    found: set[str] = set()
    for route in request.app.state.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods
    return sorted(found)


async def _invalid(request: Request, error: Any) -> Response:
    """Report every mistake of a request at once."""
    details = [
        Refusal(400, "InvalidValue", _mistake(one), target=".".join(map(str, one["loc"])))
        for one in error.errors()
    ]
    told = "; ".join(f"{one.target}: {one.message}" for one in details)
    return await _refused(request, Refusal(400, "BadRequest", told, details=details))


def _mistake(error: dict[str, Any]) -> str:
    match error["type"], error["loc"]:
        case "string_pattern_mismatch", (*_, "Uri"):
            return NO_PLACE
        case "model_attributes_type", ("body",):
            return NO_JSON
        case "extra_forbidden", _:
            return NO_KEY
        case _:
            return str(error["msg"])


async def _broken(request: Request, error: Any) -> Response:
    told = f"This is an error of the service itself, {type(error).__name__}; its log has more."
    return await _refused(request, Refusal(500, "InternalServerError", told))
