"""The service's web application: its settings, its description, and the form of its errors."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response  # noqa: TC002 - FastAPI looks at it
from starlette.exceptions import HTTPException
from starlette.routing import Match

from daskprs import __version__
from daskprs._serve.bodies import JSON
from daskprs._serve.http_errors import Refusal
from daskprs._serve.page import page_of

if TYPE_CHECKING:
    from daskprs._serve.endpoint import Endpoint
    from daskprs._serve.health import Health

NO_PLACE = (
    "Name a file or folder of this service: /path, file:///path, or "
    "azureml://datastores/<name>/paths/<path>; neither a glob nor a URL of another store"
)
NO_JSON = "Send an object of JSON, with the header Content-Type: application/json"
MOST_MISTAKES = 100
NO_KEY = "Unknown key; GET /docs shows the keys"
DESCRIPTION = """Runs batch deployments as jobs. Invoke one with `POST /jobs`, look at it with
`GET /jobs/{name}`, fetch what it made with `GET /jobs/{name}/outputs/{path}`."""


def application(endpoint: Endpoint, health: Health) -> FastAPI:
    """Return the application that serves an endpoint, and answers its supervisor."""
    app = FastAPI(
        title=f"daskprs batch endpoint {endpoint.name}",
        version=__version__,
        description=DESCRIPTION,
        openapi_url=None,
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
    app.state.routes = [*endpoint.router.routes, *health.router.routes]
    app.include_router(endpoint.router)
    app.include_router(health.router)

    @cache  # both need no token, so they cost next to nothing
    def description() -> Response:
        return JSON(_description(app))

    @cache
    def page() -> HTMLResponse:
        return page_of(_description(app))

    app.add_api_route("/openapi.json", description, include_in_schema=False)
    app.add_api_route("/docs", page, include_in_schema=False)
    return app


def _description(app: FastAPI) -> dict[str, Any]:
    """Return the description of the service, without FastAPI's answer to mistakes: ours is 400."""
    found = app.openapi()
    for methods in found["paths"].values():
        for operation in methods.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        found["components"]["schemas"].pop(name, None)
    return found


async def _refused(request: Request, error: Any) -> Response:
    del request
    return JSON({"error": error.error}, error.status, error.headers)


async def _http(request: Request, error: Any) -> Response:
    """Answer requests that the framework rejects: unknown path or method, body not JSON."""
    code = {404: "NotFound", 405: "MethodNotAllowed"}.get(error.status_code, "BadRequest")
    headers = dict(error.headers or {})
    if error.status_code == 405:  # noqa: PLR2004 - the framework knows the first route only
        headers["Allow"] = ", ".join(_methods(request))
    message = f"{request.method} {request.url.path}: {error.detail}."
    return await _refused(request, Refusal(error.status_code, code, message, headers=headers))


def _methods(request: Request) -> list[str]:
    """Return the methods allowed on the path of a request."""
    found: set[str] = set()
    for route in request.app.state.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods
    return sorted(found)


async def _invalid(request: Request, error: Any) -> Response:
    """Report the mistakes of a request at once, the first ones of many."""
    details = [
        Refusal(400, "InvalidValue", _mistake(one), target=".".join(map(str, one["loc"]))).error
        for one in error.errors()[:MOST_MISTAKES]
    ]
    message = "; ".join(f"{one['target']}: {one['message']}" for one in details)
    return await _refused(request, Refusal(400, "BadRequest", message, details=details))


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
    message = f"This is an error of the service itself, {type(error).__name__}; its log has more."
    return await _refused(request, Refusal(500, "InternalServerError", message))
