"""The bodies of the service's answers, for its description and for authors of clients."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel, Field
from starlette.responses import JSONResponse

Status = Literal["Queued", "Running", "CancelRequested", "Completed", "Failed", "Canceled"]


class ErrorBody(BaseModel):
    """One error."""

    code: str
    message: str
    target: str | None = None
    details: list[ErrorBody] = []


class ErrorAnswer(BaseModel):
    """What was refused, and why."""

    error: ErrorBody


class Counted(BaseModel):
    """How many there are so far."""

    total: int
    succeeded: int
    failed: int


class JobProperties(BaseModel):
    """How a job is."""

    status: Status
    deployment: str
    InputData: dict[str, dict[str, str]]
    OutputData: dict[str, dict[str, str]]
    overrides: dict[str, Any]
    displayName: str | None = None
    experimentName: str | None = None
    description: str | None = None
    canResume: bool = Field(description="`POST …/resume` goes on where it was.")
    error: ErrorBody | None = Field(
        None, description="Why it failed. Code `JobDied`: its process ended without a word."
    )
    miniBatches: Counted | None = None
    items: Counted | None = None


class SystemData(BaseModel):
    """Who made it, and when."""

    createdAt: str
    createdBy: str


class JobAnswer(BaseModel):
    """A job."""

    id: str
    name: str
    type: str
    properties: JobProperties
    systemData: SystemData


class JobsAnswer(BaseModel):
    """Jobs, the newest first."""

    value: list[JobAnswer]
    nextLink: str | None = None


class FileAnswer(BaseModel):
    """A file below a folder of a job."""

    path: str
    sizeBytes: int


class FilesAnswer(BaseModel):
    """Files, by path."""

    value: list[FileAnswer]
    isTruncated: bool = Field(description="There are more than are listed.")


class Defaults(BaseModel):
    """What is meant where a request does not say."""

    deploymentName: str | None


class EndpointAnswer(BaseModel):
    """The endpoint."""

    name: str
    scoringUri: str
    authMode: str
    defaults: Defaults
    deployments: list[str]


class JSON(JSONResponse):
    """JSON in ASCII: file names and callers' texts may hold characters that UTF-8 cannot encode."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        values = content.model_dump() if isinstance(content, BaseModel) else content
        return json.dumps(values).encode("ascii")
