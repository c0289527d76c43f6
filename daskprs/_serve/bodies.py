"""The bodies of requests and answers, as Azure's batch endpoints document them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator  # noqa: TC003 - pydantic looks at it
from datetime import timedelta
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from starlette.responses import JSONResponse

from daskprs._options.time_rules import LONGEST_S

PLACE = r"(?:/|file:///|azureml:)[^\x00*?\[\]]*"
"""The pattern of a caller's path: a file or a folder, not a glob."""
WEB = r"https://[^\x00-\x20\x7f]+"
Status = Literal[
    "Queued", "Running", "CancelRequested", "Completed", "Failed", "Canceled", "Interrupted"
]
LONGEST_PATH = 4096
LONGEST_TEXT = 256
MOST = 2**31 - 1
MOST_INPUTS = 100
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$"
"""The pattern of a job's name, which is also that of its folder."""

BELOW = (
    "A path below a folder that the operator named: `/data/new`, `file:///data/new`, or "
    "`azureml://datastores/<name>/paths/new`"
)
InputUri = Annotated[
    str,
    Field(
        pattern=f"^(?:{PLACE}|{WEB})$",
        max_length=LONGEST_PATH,
        description=f"{BELOW}; an asset of the operator, `azureml:<name>:<version>`; or a file on "
        "a host that the operator named, `https://<host>/<path>`.",
    ),
]
OutputUri = Annotated[
    str, Field(pattern=f"^{PLACE}$", max_length=LONGEST_PATH, description=f"{BELOW}.")
]
NO_OTHER_NAMES: dict[str, Any] = {"additionalProperties": False}
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,99}$")]
Tagged = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]{1,256}$")]


def _whole(given: Any) -> Any:
    """Convert 5.0 to 5, which JSON does not distinguish, and "5", which some clients send."""
    if isinstance(given, str) and _DIGITS.fullmatch(given):
        return int(given)
    return int(given) if isinstance(given, float) and given.is_integer() else given


def _or_text(least: int, most: int, digits: str) -> WithJsonSchema:
    """Describe a number that may be sent as text."""
    number = {"type": "integer", "minimum": least, "maximum": most}
    return WithJsonSchema({"anyOf": [number, {"type": "string", "pattern": f"^(?:{digits})$"}]})


_DURATION = TypeAdapter(timedelta)
_DATES = re.compile(r"P[^T]*[YM]")


def _in_seconds(given: Any) -> Any:
    """Convert a duration in the form of ISO 8601 to whole seconds, rounded up."""
    if not (isinstance(given, str) and given.startswith("P")):
        return _whole(given)
    if _DATES.match(given):
        msg = "Years and months have no fixed length; give weeks, days, hours, minutes or seconds"
        raise ValueError(msg)
    try:
        return math.ceil(_DURATION.validate_python(given).total_seconds())
    except ValidationError as error:
        msg = "Not a duration such as PT30S, PT1M30S or P1DT2H (ISO 8601)"
        raise ValueError(msg) from error


_H, _M, _S, _PART = "(?:1?[1-9]|[12]0)", "[1-9][0-9]?", "[1-9][0-9]{0,3}", r"(?:\.[0-9]{1,3})?"
_TIME = rf"T(?:{_H}{_PART}H|(?:{_H}H)?{_M}{_PART}M|(?:{_H}H)?(?:{_M}M)?{_S}{_PART}S)"
SHORT_DURATION = rf"P(?:1D(?:{_TIME})?|{_TIME})"
"""The pattern of durations that are never too long; others are taken, too."""
_DIGITS = re.compile(r"-1|[0-9]{1,10}")
Count = Annotated[
    int, Field(ge=1, le=MOST), BeforeValidator(_whole), _or_text(1, MOST, "[1-9][0-9]{0,8}")
]
Retries = Annotated[
    int, Field(ge=0, le=MOST), BeforeValidator(_whole), _or_text(0, MOST, "0|[1-9][0-9]{0,8}")
]
Threshold = Annotated[
    int, Field(ge=-1, le=MOST), BeforeValidator(_whole), _or_text(-1, MOST, "-1|0|[1-9][0-9]{0,8}")
]
Timeout = Annotated[
    int,
    Field(ge=1, le=LONGEST_S),
    BeforeValidator(_in_seconds),
    _or_text(1, LONGEST_S, rf"[1-9][0-9]{{0,4}}|{SHORT_DURATION}"),
]


def _refuse_many(given: Any) -> Any:
    """Refuse a body part with many entries before each of them is checked and reported."""
    if isinstance(given, dict) and len(given) > MOST_INPUTS:
        msg = f"{len(given)} entries; at most {MOST_INPUTS} are taken"
        raise ValueError(msg)
    return given


Few = BeforeValidator(_refuse_many)

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
        _refuse_many(given)
        names = {name.lower(): name for name in cls.model_fields}
        renamed = {names.get(str(key).lower(), key): value for key, value in given.items()}
        return renamed if len(renamed) == len(given) else given


Kind = Literal["UriFile", "UriFolder", "MLTable", "MLFlowModel", "CustomModel", "TritonModel"]
_KINDS = {one.lower(): one for one in (*get_args(Kind), "Literal")}


def _capitalized(given: Any) -> Any:
    """Take ``info``, as YAML files write it, for ``Info``."""
    return given.capitalize() if isinstance(given, str) else given


def _kind_named(given: Any) -> Any:
    """Take ``uri_file``, as YAML files write it, for ``UriFile``."""
    return _KINDS.get(given.lower().replace("_", ""), given) if isinstance(given, str) else given


class DataInput(BodyPart):
    """A place of data."""

    JobInputType: Annotated[Kind, BeforeValidator(_kind_named)]
    Uri: InputUri


class LiteralInput(BodyPart):
    """A value, for a deployment of a pipeline."""

    JobInputType: Annotated[Literal["Literal"], BeforeValidator(_kind_named)]
    Value: Annotated[str, Field(max_length=LONGEST_PATH)] | int | float | bool


def _form(given: Any) -> str:
    """Return the form of an input, so that only the mistakes of that form are reported."""
    if isinstance(given, LiteralInput):
        return "literal"
    keys = given.items() if isinstance(given, dict) else ()
    kinds = (_kind_named(value) for key, value in keys if str(key).lower() == "jobinputtype")
    return "literal" if "Literal" in kinds else "data"


Input = Annotated[
    Annotated[DataInput, Tag("data")] | Annotated[LiteralInput, Tag("literal")],
    Discriminator(_form),
]


class DataOutput(BodyPart):
    """A place for output: a folder, or a file that does not exist yet."""

    JobOutputType: Annotated[Literal["UriFile", "UriFolder"], BeforeValidator(_kind_named)]
    Uri: OutputUri
    mode: Literal["rw_mount", "upload", "ReadWriteMount", "Upload"] | None = Field(
        None, description="Without effect: the output lies where its path says at once."
    )


class JobRetrySettings(BodyPart):
    """The number of attempts at a mini-batch, and the timeout of each."""

    maxRetries: Retries | None = Field(
        None, description="Attempts at a mini-batch; 0 also means one attempt."
    )
    timeout: Timeout | None = Field(
        None, description="Seconds for one call of `run`, as a number or as `PT30S`."
    )


class JobResources(BodyPart):
    """The resources of a job."""

    instanceCount: Count | None = None


class JobCompute(JobResources):
    """The same, in the words of Azure's client."""

    isLocal: bool | None = Field(None, description="Without effect: the operator decides.")


class Labels(BodyPart):
    """The labels of a job, for people."""

    displayName: str | None = Field(None, max_length=LONGEST_TEXT)
    experimentName: str | None = Field(None, max_length=LONGEST_TEXT)
    description: str | None = Field(None, max_length=LONGEST_TEXT)
    tags: Annotated[dict[Tagged, Tagged] | None, Few] = Field(
        None, max_length=MOST_INPUTS, json_schema_extra=NO_OTHER_NAMES
    )


class JobRequestProperties(Labels):
    """The work of a job, and its differences from the deployment."""

    InputData: Annotated[dict[Name, Input], Few] = Field(
        default_factory=dict,
        max_length=MOST_INPUTS,
        json_schema_extra=NO_OTHER_NAMES,
        description="A deployment of a model takes one place of data; its name is yours.",
    )
    OutputData: Annotated[dict[Name, DataOutput], Few] = Field(
        default_factory=dict,
        max_length=MOST_INPUTS,
        json_schema_extra=NO_OTHER_NAMES,
        description="Where output goes, where the operator allows it; else it stays with the job.",
    )
    miniBatchSize: Count | None = None
    errorThreshold: Threshold | None = None
    maxConcurrencyPerInstance: Count | None = None
    loggingLevel: (
        Annotated[Literal["Debug", "Info", "Warning"], BeforeValidator(_capitalized)] | None
    ) = None
    outputFileName: str | None = Field(None, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$")
    retrySettings: JobRetrySettings | None = None
    resources: JobResources | None = None
    compute: JobCompute | None = None
    name: Annotated[str, Field(pattern=NAME_PATTERN)] | None = Field(
        None, description="The name of the job, which no other job has. Default: a new one."
    )
    properties: Labels | None = Field(None, description="The names of the job may stand here, too.")

    def instance_counts(self) -> set[int]:
        """Return the numbers of nodes that the request gives."""
        holders = (one for one in (self.resources, self.compute) if one is not None)
        return {one.instanceCount for one in holders if one.instanceCount is not None}

    def overrides(self) -> dict[str, Any]:
        """Return the changes to the deployment, by the keys of its file."""
        retry = self.retrySettings
        found = {
            "settings.mini_batch_size": self.miniBatchSize,
            "settings.error_threshold": self.errorThreshold,
            "settings.max_concurrency_per_instance": self.maxConcurrencyPerInstance,
            "settings.logging_level": self.loggingLevel and self.loggingLevel.lower(),
            "settings.output_file_name": self.outputFileName,
            "settings.retry_settings.max_retries": retry and retry.maxRetries,
            "settings.retry_settings.timeout": retry and retry.timeout,
            "resources.instance_count": next(iter(self.instance_counts()), None),
        }
        return {key: value for key, value in found.items() if value is not None}

    def places(self) -> Iterator[tuple[str, DataInput]]:
        """Yield the data inputs with their names."""
        for name, one in self.InputData.items():
            if isinstance(one, DataInput):
                yield name, one

    def literals(self) -> dict[str, str | float | bool]:
        """Return the literal inputs."""
        return {
            name: one.Value for name, one in self.InputData.items() if isinstance(one, LiteralInput)
        }

    def labels(self) -> dict[str, Any]:
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


# ---- answers ----


class ErrorBody(BaseModel):
    """One error."""

    code: str
    message: str
    target: str | None = None
    details: list[ErrorBody] = []


class ErrorAnswer(BaseModel):
    """A refusal, with its reason."""

    error: ErrorBody


class Counted(BaseModel):
    """The items of the mini-batches that have succeeded or failed."""

    total: int
    succeeded: int
    failed: int


class OfPlan(BaseModel):
    """The mini-batches of a job."""

    total: int | None = Field(description="All of the job; null while that is unknown.")
    succeeded: int
    failed: int


class ListedProperties(BaseModel):
    """The state of a job, without what its folder has to be read for."""

    status: Status
    deployment: str
    InputData: dict[str, dict[str, str]]
    OutputData: dict[str, dict[str, str]]
    overrides: dict[str, Any]
    displayName: str | None = None
    experimentName: str | None = None
    description: str | None = None
    tags: dict[str, str] = {}
    canResume: bool = Field(description="`POST …/resume` goes on where it was.")


class JobProperties(ListedProperties):
    """The state of a job."""

    error: ErrorBody | None = Field(
        None,
        description="Why it failed. Code `JobFailed`; `JobRefused`: nothing was started; "
        "`JobDied`: its process ended without a word.",
    )
    miniBatches: OfPlan | None = None
    items: Counted | None = None


class SystemData(BaseModel):
    """The creator, and the time of creation."""

    createdAt: str
    createdBy: str


class ListedJob(BaseModel):
    """A job in a list, or a new one."""

    id: str
    name: str
    type: str
    properties: ListedProperties
    systemData: SystemData


class JobAnswer(ListedJob):
    """A job."""

    properties: JobProperties


class JobsAnswer(BaseModel):
    """Jobs, the newest first."""

    value: list[ListedJob]
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
    """The defaults of a request."""

    deploymentName: str | None


class EndpointAnswer(BaseModel):
    """The endpoint."""

    name: str
    scoringUri: str
    authMode: str
    defaults: Defaults
    deployments: list[str]
    traffic: dict[str, int] = Field(description="Percentages of the requests that name none.")


class JSON(JSONResponse):
    """JSON in ASCII: file names and callers' texts may hold characters that UTF-8 cannot encode."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        values = content.model_dump() if isinstance(content, BaseModel) else content
        return json.dumps(values).encode("ascii")
