"""The keys of pipeline files: ports, steps, components, pipelines, and the effect of each key."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    ValidationInfo,
    field_validator,
    model_validator,
)

from daskprs._inputs.source.sizes import size_in_one_form
from daskprs._options.time_rules import LONGEST_S
from daskprs.azure._yaml_files.form import (
    BY_SHAPE,
    MAPPING,
    PLAIN,
    Form,
    ineffective,
    without_effect,
    works,
)
from daskprs.errors import OptionError

ENVIRONMENT = (
    "`--environment NAME=PYTHON` names the Python interpreter of the environment; default: the "
    "interpreter that runs daskprs"
)
OWN_PYTHON = "the Python that runs daskprs is used; --environment NAME=PYTHON names another"
HERE = "everything runs on this machine, or on the Dask cluster that you name"
ONCE = "a command runs once, on this machine"
IN_PLACE = "data is read and written in place"
OLD_PLACE = "an older way to give `path`"
RECORDED = "kept in the record of the run"
SHOWN_IN_THE_STUDIO = "daskprs does not show it"
KIND = "the kind of the file"
ITEMS_THAT_MAY_FAIL = "the number of failed items that are allowed; default -1: any number"
BATCHES_THAT_MAY_FAIL = "the number of failed mini-batches that are allowed; default -1: any number"
ALL = -1
"""Stands for all nodes that there are."""

Scalar = bool | int | float | str
PathType = Literal[
    "uri_file", "uri_folder", "mltable", "path", "custom_model", "mlflow_model", "triton_model"
]
"""Types whose values are paths; ``path`` is an older name of ``uri_folder``."""
PATH_TYPES = get_args(PathType)
FILE_TYPES = ("uri_file",)


def lowered(given: Any) -> Any:
    """Return a word in small letters, and any other value as it is."""
    return given.lower() if isinstance(given, str) else given


Mode = Literal[
    "ro_mount", "rw_mount", "download", "upload", "direct", "eval_mount", "eval_download"
]
OutputMode = Literal[Mode, "mount"]
"""Azure also takes an older name of ``rw_mount``, for outputs alone."""
LoggingLevel = Annotated[
    Literal["debug", "info", "warning", "error", "critical"], BeforeValidator(lowered)
]


def _size(given: str) -> str:
    try:
        size_in_one_form(given)
    except OptionError as error:
        raise ValueError(str(error)) from error
    return given


def _word(given: Any) -> Any:
    return str(given) if isinstance(given, bool) else given


Variables = dict[str, Annotated[str, BeforeValidator(_word)]]
"""Environment variables; a boolean becomes the word that an environment has for it."""


# ---- inputs and outputs ----


class LocalPath(Form):
    """An older form of ``code`` and ``dataset``: ``{local_path: …}``."""

    local_path: str = works()


class InputForm(Form):
    """An input that is more than a value."""

    type: Annotated[
        Literal[PathType, "string", "number", "integer", "boolean"] | None, BeforeValidator(lowered)
    ] = works(None)
    path: str | None = works(None, note="a local path, a reference or an expression")
    optional: bool = works(default=False)
    default: Scalar | None = works(None)
    min: float | None = works(None)
    max: float | None = works(None)
    enum: list[Scalar] | None = works(None)
    dataset: LocalPath | None = works(None, note=OLD_PLACE)
    file: str | None = works(None, note=OLD_PLACE)
    folder: str | None = works(None, note=OLD_PLACE)
    mode: Mode | None = without_effect(IN_PLACE)
    description: str | None = without_effect(SHOWN_IN_THE_STUDIO)

    @field_validator("dataset", mode="before")
    @classmethod
    def _reference(cls, given: Any) -> Any:
        return {"local_path": given} if isinstance(given, str) else given

    @property
    def place_key(self) -> str:
        """The key of the path or reference."""
        keys = (key for key in ("path", "file", "folder", "dataset") if getattr(self, key))
        return next(keys, "path")

    @property
    def place(self) -> str | None:
        """The path or reference, by whichever key it is given."""
        dataset = None if self.dataset is None else self.dataset.local_path
        return self.path or self.file or self.folder or dataset


class OutputForm(Form):
    """An output that is more than a name."""

    type: PathType | None = works(None)
    path: str | None = works(None, note="the place of the output; default: the folder of the run")
    mode: OutputMode | None = without_effect(IN_PLACE)
    description: str | None = without_effect(SHOWN_IN_THE_STUDIO)
    name: str | None = without_effect("no asset is registered")
    version: str | None = without_effect("no asset is registered")


def without_value_key(given: Any) -> Any:
    """Return the value of ``{value: 3}``, an older way to give ``3``; anything else as it is."""
    if isinstance(given, dict) and [*given] == ["value"] and not isinstance(given["value"], dict):
        return given["value"]
    return given


Inputs = dict[
    str,
    Annotated[
        Annotated[InputForm, MAPPING] | Annotated[Scalar | None, PLAIN],
        BY_SHAPE,
        BeforeValidator(without_value_key),
    ],
]
Outputs = dict[
    str, Annotated[Annotated[OutputForm, MAPPING] | Annotated[str | None, PLAIN], BY_SHAPE]
]


class JobForm(Form):
    """The keys that steps, components and pipelines share."""

    type: str | None = works(None)
    inputs: Inputs | None = works(None)
    outputs: Outputs | None = works(None)
    name: str | None = works(
        None, note="the name of a component is kept in the results of its steps"
    )
    version: str | None = without_effect(SHOWN_IN_THE_STUDIO)
    display_name: str | None = without_effect(SHOWN_IN_THE_STUDIO)
    description: str | None = without_effect(SHOWN_IN_THE_STUDIO)
    experiment_name: str | None = without_effect(SHOWN_IN_THE_STUDIO)
    tags: dict[str, Any] | None = without_effect(SHOWN_IN_THE_STUDIO)
    properties: dict[str, Any] | None = without_effect(SHOWN_IN_THE_STUDIO)
    schema_url: str | None = works(None, KIND, alias="$schema")
    compute: Any = without_effect(HERE)
    identity: Any = without_effect("no authorization is needed here")
    services: Any = without_effect("no service is started here")


# ---- steps and components ----


class StepForm(JobForm):
    """A step of a pipeline, or a component."""

    component: Any = works(None, note="a file, a reference, or the component itself")
    environment_variables: Variables | None = works(None)
    queue_settings: Any = without_effect(HERE)
    is_deterministic: bool | None = works(
        None, note="default true: earlier results of the step are reused"
    )
    additional_includes: list[Any] | None = works(
        None,
        note=(
            "files and folders that are put beside the code; `x.zip` puts an archive of the folder "
            "`x` there"
        ),
    )


class ResourcesForm(Form):
    """``resources``."""

    instance_count: int | None = works(
        None, note="the number of nodes for a parallel step; -1: all nodes"
    )
    instance_type: Any = without_effect(HERE)
    properties: Any = without_effect(HERE)
    docker_args: Any = without_effect(HERE)
    shm_size: str | None = without_effect(HERE)
    locations: Any = without_effect(HERE)
    max_instance_count: Any = without_effect(HERE)

    @field_validator("instance_count")
    @classmethod
    def _of_nodes(cls, given: int | None) -> int | None:
        if given is not None and given < 1 and given != ALL:
            msg = f"it has to be at least 1, or {ALL} for all nodes, not {given}"
            raise ValueError(msg)
        return given


class LimitsForm(Form):
    """``limits``."""

    timeout: float | None = works(
        None, note="the time in seconds after which the command is killed", gt=0
    )


class CommandForm(StepForm):
    """A command step, or a command component."""

    command: str | None = works(None, note="bash runs the command in a copy of the code")
    code: str | LocalPath | None = works(None)
    limits: LimitsForm | None = works(None)
    environment: Any = works(None, note=ENVIRONMENT)
    resources: ResourcesForm | None = without_effect(ONCE)
    distribution: Any = works(
        None, note="a command runs once: pytorch, tensorflow and mpi see a world of one process"
    )
    job_tier: Any = without_effect("nothing is queued here")
    priority: Any = without_effect("nothing is queued here")


class RetryForm(Form):
    """``retry_settings``."""

    max_retries: int | None = works(None, note="attempts after the first one; default 2", ge=0)
    timeout: float | None = works(
        None, note="seconds for one call of `run`; default 60", gt=0, le=LONGEST_S
    )


class TaskForm(Form):
    """``task``."""

    type: Literal["run_function", "function"] | None = works(None)
    code: str | LocalPath | None = works(None, note="the source directory")
    entry_script: str | None = works(None)
    program_arguments: str | None = works(
        None, note="system flags among these arguments set options"
    )
    args: str | None = works(None, note="an older name of `program_arguments`")
    append_row_to: str | None = works(
        None,
        note=(
            "the output that receives the rows; without this key, the output action is "
            "`summary_only`"
        ),
    )
    environment: Any = works(None, note=ENVIRONMENT)
    model: Any = without_effect("pass the model to the step as an input")

    @property
    def arguments(self) -> tuple[str, str]:
        """The key of the script's arguments, and their text."""
        if self.program_arguments:
            return "program_arguments", self.program_arguments
        return "args", self.args or ""


class ParallelForm(StepForm):
    """A parallel step, or a parallel component."""

    task: TaskForm | None = works(None)
    input_data: str | None = works(None, note="an expression: `${{inputs.<name>}}`")
    mini_batch_size: Annotated[str, AfterValidator(_size)] | None = works(
        None, note="default: 1 file, or 1 MB of a table"
    )
    partition_keys: list[str] | str | None = works(
        None, note="takes precedence over mini_batch_size"
    )
    max_concurrency_per_instance: int | None = works(None, ge=1)
    error_threshold: int | None = works(None, note=ITEMS_THAT_MAY_FAIL, ge=-1)
    mini_batch_error_threshold: int | None = works(None, note=BATCHES_THAT_MAY_FAIL, ge=-1)
    logging_level: LoggingLevel | None = works(None)
    retry_settings: RetryForm | None = works(None)
    resources: ResourcesForm | None = works(None)
    append_row_to: str | None = works(None, note="the same as `task.append_row_to`")
    output_data: Any = without_effect("`task.append_row_to` names the output that receives rows")

    @model_validator(mode="before")
    @classmethod
    def _without_size(cls, given: Any) -> Any:
        """Leave out a size of 0 beside keys: `dump` of the azure-ai-ml package writes it."""
        if isinstance(given, dict) and given.get("partition_keys"):
            given = {k: v for k, v in given.items() if k != "mini_batch_size" or str(v) != "0"}
        return given


# ---- pipelines ----


class SettingsForm(Form):
    """``settings``. An unknown key is only a warning: published files have some."""

    model_config = ConfigDict(extra="allow")

    default_datastore: str | None = works(
        None, note="the value of the expression `${{default_datastore}}`"
    )
    datastore: str | None = works(None, note="an older name of `default_datastore`")
    continue_on_step_failure: bool | None = works(None, note="default: false")
    default_compute: Any = without_effect(HERE)
    compute: Any = without_effect(HERE)
    environment: Any = without_effect("each step has an environment of its own")
    force_rerun: bool | None = works(
        None, note="if true, each step runs again and reuses no earlier result"
    )
    continue_run_on_step_failure: bool | None = works(
        None, note="the same as `continue_on_step_failure`"
    )
    continue_run_on_failed_optional_input: bool | None = without_effect(
        "a step that depends on a failed step does not start"
    )


def as_overrides(settings: SettingsForm | None) -> tuple[str, ...]:
    """Return the settings of one file as ``--set`` would give them to another."""
    if settings is None:
        return ()
    idle = {key.name for key in ineffective(settings)}
    values = settings.model_dump(exclude_unset=True).items()
    return tuple(f"settings.{key}={json.dumps(value)}" for key, value in values if key not in idle)


class InnerPipelineForm(JobForm):
    """A step that is a pipeline, or a pipeline component."""

    component: Any = works(None, note="a file, a reference, or the component itself")
    jobs: dict[str, Any] | None = works(
        None,
        note="steps, by name; together with `component`, they change the steps of the component",
    )
    settings: SettingsForm | None = works(None)
    is_deterministic: bool | None = works(
        None, note="default true; if false, each step of the inner pipeline runs again"
    )


class PipelineJobForm(JobForm):
    """A pipeline job, whether its steps are in its own file or in that of a component."""

    type: Literal["pipeline"] | None = works(None)
    settings: SettingsForm | None = works(None)
    name: str | None = works(None, note=RECORDED)
    display_name: str | None = works(None, note=RECORDED)
    schedule: Any = without_effect("the pipeline runs once, when you run it")


class PipelineForm(PipelineJobForm):
    """A pipeline job with its steps."""

    jobs: dict[str, Any] = works(note="steps, by name")
    is_deterministic: bool | None = works(
        None, note="only of a component: if false, each step runs again"
    )

    @field_validator("is_deterministic")
    @classmethod
    def _of_component(cls, given: Any, others: ValidationInfo) -> Any:
        """Refuse the key in a job, as Azure does; a file without a schema may be a component."""
        if "pipelinejob" in str(others.data.get("schema_url")).lower():
            msg = (
                "only a component has this key, and this file is a job. settings.force_rerun: true "
                "lets each step run again"
            )
            raise ValueError(msg)
        return given


class ComponentJobForm(PipelineJobForm):
    """A pipeline job that consists of a pipeline component."""

    component: str = works(note="the file of a pipeline component, or an asset")
