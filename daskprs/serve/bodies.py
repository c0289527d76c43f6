"""The bodies of requests and answers, as Azure's batch endpoints document them."""

from __future__ import annotations

import json
from collections.abc import Iterator  # noqa: TC003 - pydantic looks at it
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)
from starlette.responses import JSONResponse

from daskprs.options.rules import LONGEST_S

URI_PATTERN = r"^(?:/|file:///|azureml://)[^\x00*?\[\]]*$"
"""The pattern of a caller's path: a file or a folder, not a glob."""
Status = Literal["Queued", "Running", "CancelRequested", "Completed", "Failed", "Canceled"]
LONGEST_PATH = 4096
LONGEST_TEXT = 256
MOST = 2**31 - 1
MOST_INPUTS = 100

Uri = Annotated[
    str,
    Field(
        pattern=URI_PATTERN,
        max_length=LONGEST_PATH,
        description="A path below a folder that the operator named: `/data/new`, "
        "`file:///data/new`, or `azureml://datastores/<name>/paths/new`.",
    ),
]
NO_OTHER_NAMES: dict[str, Any] = {"additionalProperties": False}
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,99}$")]


def _whole(given: Any) -> Any:
    """Convert 5.0 to 5: JSON does not distinguish them."""
    return int(given) if isinstance(given, float) and given.is_integer() else given


Count = Annotated[int, Field(ge=1, le=MOST), BeforeValidator(_whole)]
Threshold = Annotated[int, Field(ge=-1, le=MOST), BeforeValidator(_whole)]
Seconds = Annotated[int, Field(ge=1, le=LONGEST_S), BeforeValidator(_whole)]
Duration = Annotated[str, Field(pattern=r"^PT[1-9][0-9]{0,4}S$")]


# ---- requests ----


class BodyPart(BaseModel):
    """A part of the body: nothing but what is named, spelled in any case."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _in_our_case(cls, given: Any) -> Any:
        """Take ``inputData`` for ``InputData``: both are in use."""
        if not isinstance(given, dict):
            return given
        names = {name.lower(): name for name in cls.model_fields}
        renamed = {names.get(str(key).lower(), key): value for key, value in given.items()}
        return renamed if len(renamed) == len(given) else given


class DataInput(BodyPart):
    """Where data lies."""

    JobInputType: Literal["UriFile", "UriFolder"]
    Uri: Uri


class LiteralInput(BodyPart):
    """A value, for a deployment of a pipeline."""

    JobInputType: Literal["Literal"]
    Value: str | int | float | bool


def _kind(given: Any) -> str:
    """Return the kind of an input, so that only the mistakes of that kind are reported."""
    if isinstance(given, LiteralInput):
        return "literal"
    kinds = given.items() if isinstance(given, dict) else ()
    is_literal = any(str(k).lower() == "jobinputtype" and v == "Literal" for k, v in kinds)
    return "literal" if is_literal else "data"


Input = Annotated[
    Annotated[DataInput, Tag("data")] | Annotated[LiteralInput, Tag("literal")],
    Discriminator(_kind),
]


class DataOutput(BodyPart):
    """Where output goes: a folder, or a file that is not there yet."""

    JobOutputType: Literal["UriFile", "UriFolder"]
    Uri: Uri


class JobRetrySettings(BodyPart):
    """How often a mini-batch is tried, and for how long."""

    maxRetries: Count | None = Field(None, description="Attempts at a mini-batch.")
    timeout: Duration | Seconds | None = Field(
        None, description="Seconds for one call of `run`, as a number or `PT30S`."
    )


class JobResources(BodyPart):
    """What a job may use."""

    instanceCount: Count | None = None


class Labels(BodyPart):
    """What people call a job."""

    displayName: str | None = Field(None, max_length=LONGEST_TEXT)
    experimentName: str | None = Field(None, max_length=LONGEST_TEXT)
    description: str | None = Field(None, max_length=LONGEST_TEXT)


class JobRequestProperties(Labels):
    """What to do, and what differs from the deployment for this once."""

    InputData: dict[Name, Input] = Field(
        default_factory=dict,
        max_length=MOST_INPUTS,
        json_schema_extra=NO_OTHER_NAMES,
        description="A deployment of a model takes one place of data; its name is yours.",
    )
    OutputData: dict[Name, DataOutput] = Field(
        default_factory=dict,
        max_length=1,
        json_schema_extra=NO_OTHER_NAMES,
        description="Where output goes, where the operator allows it; else it stays with the job.",
    )
    miniBatchSize: Count | None = None
    errorThreshold: Threshold | None = None
    maxConcurrencyPerInstance: Count | None = None
    loggingLevel: Literal["Debug", "Info", "Warning"] | None = None
    outputFileName: str | None = Field(None, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$")
    retrySettings: JobRetrySettings | None = None
    resources: JobResources | None = None
    properties: Labels | None = Field(None, description="The names of the job may stand here, too.")

    def overrides(self) -> dict[str, Any]:
        """Return the changes to the deployment, by the keys of its file."""
        retry, resources = self.retrySettings, self.resources
        found = {
            "settings.mini_batch_size": self.miniBatchSize,
            "settings.error_threshold": self.errorThreshold,
            "settings.max_concurrency_per_instance": self.maxConcurrencyPerInstance,
            "settings.logging_level": self.loggingLevel and self.loggingLevel.lower(),
            "settings.output_file_name": self.outputFileName,
            "settings.retry_settings.max_retries": retry and retry.maxRetries,
            "settings.retry_settings.timeout": retry and _seconds(retry.timeout),
            "resources.instance_count": resources and resources.instanceCount,
        }
        return {key: value for key, value in found.items() if value is not None}

    def places(self) -> Iterator[tuple[str, DataInput]]:
        """Yield the data inputs with their names."""
        for name, one in self.InputData.items():
            if isinstance(one, DataInput):
                yield name, one

    def literals(self) -> dict[str, str]:
        """Return the literal inputs, as YAML writes them."""
        return {
            name: one.Value if isinstance(one.Value, str) else json.dumps(one.Value)
            for name, one in self.InputData.items()
            if isinstance(one, LiteralInput)
        }

    def labels(self) -> dict[str, str]:
        """Return the job's labels."""
        holders = [self] if self.properties is None else [self.properties, self]
        return {
            name: value
            for holder in holders
            for name in Labels.model_fields
            if (value := getattr(holder, name)) is not None
        }


class JobRequest(BodyPart):
    """An invocation."""

    properties: JobRequestProperties


def _seconds(timeout: str | int | None) -> int | None:
    return int(timeout.strip("PTS")) if isinstance(timeout, str) else timeout


# ---- answers ----


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
