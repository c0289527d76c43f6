"""The keys of parallel steps and parallel components."""

from __future__ import annotations

from typing import Any

from pydantic import field_validator

from daskprs.azure.pipelines.forms.step import ENVIRONMENT, Code, ResourcesForm, StepForm
from daskprs.errors import OptionError
from daskprs.inputs.source.sizes import parse_bytes
from daskprs.options.rules import LEVELS, LONGEST_S
from daskprs.yaml_files.form import Form, without_effect, works

TASK_TYPES = ("run_function", "function")


class RetryForm(Form):
    """``retry_settings``."""

    max_retries: int | None = works(None, note="tries, less one: default 2", ge=0)
    timeout: float | None = works(None, note="seconds for run(): default 60", gt=0, le=LONGEST_S)


class TaskForm(Form):
    """``task``."""

    type: str | None = works(None)
    code: Code = works(None, note="the source directory")
    entry_script: str | None = works(None)
    program_arguments: str | None = works(None, note="system flags in it set options")
    args: str | None = works(None, note="an older name of `program_arguments`")
    append_row_to: str | None = works(None, note="without it: summary_only")
    environment: Any = without_effect(ENVIRONMENT)
    model: Any = without_effect("give the model as an input")

    @field_validator("type")
    @classmethod
    def _known(cls, given: str | None) -> str | None:
        if given is not None and given not in TASK_TYPES:
            msg = f"it has to be run_function, not {given!r}"
            raise ValueError(msg)
        return given


class ParallelForm(StepForm):
    """A parallel step, or a parallel component."""

    task: TaskForm | None = works(None)
    input_data: str | None = works(None, note="an expression: `${{inputs.<name>}}`")
    mini_batch_size: str | None = works(None, note="default: 1 file, or 1 MB of a table")
    partition_keys: list[str] | str | None = works(None, note="wins over mini_batch_size")
    max_concurrency_per_instance: int | None = works(None, ge=1)
    error_threshold: int | None = works(None, note="default -1: never", ge=-1)
    mini_batch_error_threshold: int | None = works(None, note="default -1: never", ge=-1)
    logging_level: str | None = works(None)
    retry_settings: RetryForm | None = works(None)
    resources: ResourcesForm | None = works(None)
    append_row_to: str | None = works(None, note="another place for that of `task`")

    @field_validator("mini_batch_size")
    @classmethod
    def _size(cls, given: str | None) -> str | None:
        if given is not None:
            try:
                parse_bytes(given, "mini_batch_size")
            except OptionError as error:
                raise ValueError(str(error)) from error
        return given

    @field_validator("logging_level")
    @classmethod
    def _level(cls, given: str | None) -> str | None:
        if given is not None and given.upper() not in LEVELS:
            msg = f"it has to be one of {', '.join(LEVELS)}, not {given!r}"
            raise ValueError(msg)
        return given
