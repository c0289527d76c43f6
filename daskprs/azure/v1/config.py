"""`ParallelRunConfig`: how an entry script is run, as in SDK v1."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import yaml
from pydantic import AliasChoices, ConfigDict, ValidationError, field_validator, model_validator

from daskprs._inputs.source.sizes import size_in_one_form
from daskprs._options.rules import check_number
from daskprs._options.run_options import TABLE
from daskprs._suggest import nearest_of
from daskprs.azure._pipelines.forms import Variables
from daskprs.azure._yaml_files.document import Document
from daskprs.azure._yaml_files.form import F, Form, filled, without_effect, works
from daskprs.azure._yaml_files.mistakes import whole
from daskprs.azure.v1.absent import Known
from daskprs.azure.v1.environment import Environment, name_of_compute, variables_of
from daskprs.azure.v1.parameter import PipelineParameter, settled
from daskprs.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from os import PathLike

    from pydantic_core import ErrorDetails

    from daskprs._options.arguments import NoOtherOptions
    from daskprs.azure.v1.environment import AmlCompute
    from daskprs.azure.v1.workspace import Workspace

HERE = "the script runs here, or on the cluster of `client`"
LEVELS = {"WARN": "WARNING", "FATAL": "CRITICAL"}
"""Other names of levels, which Python's logging has, too."""


def _size(_: str, value: Any) -> Any:
    """Return a size or a count, a number as a Python number; reject others."""
    size = size_in_one_form(value)
    return value if isinstance(value, str) else size


RULES = {"node_count": check_number(1), "mini_batch_size": _size}
"""Rules that differ from those of `daskprs.RunOptions`, where None is allowed, and no costs."""
NUMBERS = (
    "error_threshold",
    "node_count",
    "process_count_per_node",
    "run_invocation_timeout",
    "run_max_try",
    "allowed_failed_count",
    "allowed_failed_percent",
)
"""Pipeline parameters are often text, in the form of a number."""


class ConfigForm(Form):
    """The parameters of a `ParallelRunConfig`."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    environment: Any = works(
        note=(
            "its `environment_variables` are set; the script runs under the Python that the "
            "workspace names for the environment, or else under that of daskprs"
        )
    )
    entry_script: str = works()
    error_threshold: int = works()
    output_action: str = works()
    compute_target: Any = without_effect(HERE, ...)
    node_count: int = works(note="the maximum number of nodes")
    process_count_per_node: int | None = works(None)
    mini_batch_size: int | str | None = works(None)
    source_directory: str | None = works(None)
    description: str | None = without_effect("a label")
    logging_level: str = works("INFO")
    run_invocation_timeout: int | float = works(60)
    run_max_try: int = works(3)
    append_row_file_name: str | None = works(None)
    allowed_failed_count: int | None = works(None)
    allowed_failed_percent: int | float | None = works(None)
    partition_keys: list[str] | None = works(None)
    environment_variables: Variables | None = works(None)

    @field_validator("source_directory", "entry_script", mode="before")
    @classmethod
    def _path(cls, value: Any) -> Any:
        return str(value) if hasattr(value, "__fspath__") else value

    @field_validator("environment")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if not hasattr(value, "name") and not isinstance(value, str):
            msg = f"environment={value!r}: must be an Environment, or the name of one"
            raise ValueError(msg)
        return value

    @field_validator(*NUMBERS, "output_action", "mini_batch_size", "logging_level", mode="before")
    @classmethod
    def _by_rule(cls, value: Any, info: Any) -> Any:
        if info.field_name in NUMBERS and isinstance(value, str):
            value = _number(value)
        if info.field_name == "logging_level":
            value = LEVELS.get(str(value).upper(), value)
        return cls._checked(info.field_name, value)

    @field_validator("append_row_file_name", "partition_keys", "environment_variables")
    @classmethod
    def _after_its_type(cls, value: Any, info: Any) -> Any:
        checked = cls._checked(info.field_name, value)
        return list(checked) if isinstance(checked, tuple) else checked

    @classmethod
    def _checked(cls, name: str, value: Any) -> Any:
        """Return a value after checking it by the rule of its option."""
        if value is None and cls.model_fields[name].default is None:
            return None
        rule = RULES.get(name) or TABLE[name].rule
        try:
            return rule(name, value)
        except OptionError as error:
            message = str(error).removesuffix(".")
            raise ValueError(message) from error

    def all_variables(self) -> dict[str, str] | None:
        """Return the agents' variables: those of the environment, overridden by the config's."""
        below = variables_of(self.environment)
        return {**below, **(self.environment_variables or {})} or None

    @model_validator(mode="after")
    def _keys_or_size(self) -> ConfigForm:
        if self.partition_keys and self.mini_batch_size is not None:
            msg = (
                f"partition_keys={self.partition_keys!r}: not together with "
                f"mini_batch_size={self.mini_batch_size!r}; a mini-batch is all that has the same "
                "keys"
            )
            raise ValueError(msg)
        return self


def _number(text: str) -> Any:
    """Return the number in a text, or the text itself when it is not a number."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


class EnvironmentForm(Form):
    """An environment in the file; its images and packages have no effect here."""

    model_config = ConfigDict(extra="ignore")

    name: str = works()
    version: str | None = works(None)
    environment_variables: Variables = works(
        {}, validation_alias=AliasChoices("environment_variables", "environmentVariables")
    )


class ConfigFileForm(ConfigForm):
    """The keys below the root key, which have two ways to name an environment and a compute."""

    environment: EnvironmentForm | str | None = works(None, "a mapping, a name or a folder")
    environment_name: str | None = works(None)
    environment_version: str | None = works(None, "a label")
    environment_dir_path: str | None = works(
        None, "a folder; the file `azureml_environment.json` in it gives the name and the variables"
    )
    compute_target: str | None = without_effect(HERE)
    compute_target_name: str | None = without_effect(HERE)
    input_format: Any = without_effect("the dataset defines it")

    @model_validator(mode="after")
    def _complete(self) -> ConfigFileForm:
        needed = {
            "environment": self.environment or self.environment_name or self.environment_dir_path,
            "compute_target": self.compute_target or self.compute_target_name,
        }
        missing = [name for name, given in needed.items() if given is None]
        if missing:
            msg = f"it has no {' and no '.join(missing)}"
            raise ValueError(msg)
        return self

    def named_environment(self) -> Environment | str:
        """Return the environment, from the file of its folder where the key names a folder."""
        if isinstance(self.environment, EnvironmentForm):
            return Environment(**self.environment.model_dump())
        place = self.environment or self.environment_dir_path
        file = os.path.join(place or "", "azureml_environment.json")  # noqa: PTH118 - any text
        if place is not None and os.path.isfile(file):  # noqa: PTH113 - the same
            return Environment(**_read(EnvironmentForm, file).model_dump())
        if self.environment is not None:
            return self.environment
        name = self.environment_name or Path(place or "").name
        return Environment(name, version=self.environment_version)


class FileForm(Form):
    """The whole file."""

    parallel_run_config: ConfigFileForm = works()


def _read(form: type[F], path: str | PathLike[str]) -> F:
    """Return the form of a file, or raise all mistakes in the file."""
    document = Document.read(path)
    return whole(*filled(form, document.content, document))


NAMES = tuple(ConfigForm.model_fields)
SAME_NAMES = [one for one in NAMES if one in TABLE and one != "source_directory"]
"""Parameters that are options of a job by the same name; None means the default of the option."""


class ParallelRunConfig(Known):
    """The settings of an entry script's run; `ParallelRunStep` gives its input.

    Parameters, their order and their defaults are those of SDK v1. All but the environment, the
    script, the folder and the compute may be a `PipelineParameter`.

    Parameters
    ----------
    environment : Environment or str
        Its `environment_variables` are set in the agents, unless the config sets others. Scripts
        use the Python that the workspace has for its name, or the running one; nothing is
        installed.
    entry_script : str
        The script, relative to `source_directory` if that is given.
    error_threshold : int
        The job fails when more items than this have failed; -1: no limit.
    output_action : {'append_row', 'summary_only'}
        What to do with the return values of `run`.
    compute_target : AmlCompute or str
        Without effect: the script runs here, or on the cluster of `client` of
        `ParallelRunStep.run`.
    node_count : int
        Upper bound for the number of nodes.
    process_count_per_node : int, optional
        Agent processes on each node. Default: the number of usable cores; on a GPU node 1.
    mini_batch_size : str or int, optional
        Files, or bytes of a table, as in ``"1MB"``. Default: 10 files, 1 MB.
    source_directory : str, optional
        The folder that the script imports from. Default: that of the script.
    description : str, optional
        For people.
    logging_level : str
        The level of the root logger in the agents.
    run_invocation_timeout : int
        Seconds for one call of ``run``.
    run_max_try : int
        Attempts at one mini-batch.
    append_row_file_name : str, optional
        Default: ``parallel_run_step.txt``.
    allowed_failed_count, allowed_failed_percent : int, float, optional
        The job fails when more mini-batches than this have failed. Default: no limit.
    partition_keys : list of str, optional
        One mini-batch for each combination of values; not together with `mini_batch_size`.
    environment_variables : dict, optional
        Set in the agents before their first import.

    Raises
    ------
    OptionError
        With a line for each parameter that is unknown, of another type, or out of range.

    """

    def __init__(
        self,
        environment: Environment | str,
        entry_script: str | PathLike[str],
        error_threshold: int,
        output_action: str,
        compute_target: AmlCompute | str,
        node_count: int | PipelineParameter,
        process_count_per_node: int | PipelineParameter | None = None,
        mini_batch_size: str | int | PipelineParameter | None = None,
        source_directory: str | PathLike[str] | None = None,
        description: str | None = None,
        logging_level: str | PipelineParameter = "INFO",
        run_invocation_timeout: float | PipelineParameter = 60,
        run_max_try: int | PipelineParameter = 3,
        append_row_file_name: str | None = None,
        allowed_failed_count: int | PipelineParameter | None = None,
        allowed_failed_percent: float | PipelineParameter | None = None,
        partition_keys: Sequence[str] | None = None,
        environment_variables: Mapping[str, str] | None = None,
        **unknown: Unpack[NoOtherOptions],
    ) -> None:
        self.environment = environment
        self.entry_script = entry_script
        self.error_threshold = error_threshold
        self.output_action = output_action
        self.compute_target = compute_target
        self.node_count = node_count
        self.process_count_per_node = process_count_per_node
        self.mini_batch_size = mini_batch_size
        self.source_directory = source_directory
        self.description = description
        self.logging_level = logging_level
        self.run_invocation_timeout = run_invocation_timeout
        self.run_max_try = run_max_try
        self.append_row_file_name = append_row_file_name
        self.allowed_failed_count = allowed_failed_count
        self.allowed_failed_percent = allowed_failed_percent
        self.partition_keys = partition_keys
        self.environment_variables = environment_variables
        self.checked({}, **unknown)

    @classmethod
    def load_yaml(cls, workspace: Workspace | None, path: str | PathLike[str]) -> ParallelRunConfig:
        """Return the config in a file, below its key ``parallel_run_config``.

        Paths in the file are relative to the working directory, as they are in Python.

        Parameters
        ----------
        workspace
            Without effect: environments and computes are names here.
        path
            The file.

        Raises
        ------
        YamlError
            With every mistake in it, each with its line and column.

        """
        config = _read(FileForm, path).parallel_run_config
        given = {name: getattr(config, name) for name in NAMES}
        given["environment"] = config.named_environment()
        given["compute_target"] = config.compute_target or config.compute_target_name
        return cls(**given)

    def save_to_yaml(self, path: str | PathLike[str]) -> None:
        """Write a file that people and `load_yaml` can read.

        The file holds the defaults of pipeline parameters, and an environment's name and variables.
        """
        form = self.checked({})
        values = {name: getattr(form, name) for name in NAMES}
        values["environment"] = _written(form.environment)
        values["compute_target"] = name_of_compute(form.compute_target)
        values["environment_variables"] = dict(form.environment_variables or {}) or None
        given = {name: value for name, value in values.items() if value is not None}
        text = yaml.safe_dump({"parallel_run_config": given}, sort_keys=False, allow_unicode=True)
        Path(path).write_text(text, encoding="utf-8")

    def parameters(self) -> Iterator[PipelineParameter]:
        """Yield the pipeline parameters of this config."""
        for name in NAMES:
            value = getattr(self, name)
            if isinstance(value, PipelineParameter):
                yield value

    def checked(self, parameters: Mapping[str, Any], **unknown: Any) -> ConfigForm:
        """Return all values, with the pipeline parameters of a submission filled in.

        An OptionError has a line for each value that cannot be used.
        """
        given = {name: settled(getattr(self, name), parameters) for name in NAMES}
        try:
            return ConfigForm.model_validate({**given, **unknown})
        except ValidationError as error:
            mistakes = {_sentence(one) for one in error.errors()}
            raise OptionError("\n".join(sorted(mistakes))) from error

    def options(self, parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the options of a job, by the names of `daskprs.RunOptions`."""
        form = self.checked(parameters or {})
        options = {name: value for name in SAME_NAMES if (value := getattr(form, name)) is not None}
        count = form.allowed_failed_count
        options["allowed_failed_count"] = -1 if count is None else count
        options["environment_variables"] = form.all_variables()
        return options


def _sentence(error: ErrorDetails) -> str:
    name = ".".join(str(one) for one in error["loc"])
    match error["type"]:
        case "extra_forbidden":
            return f"{name}: ParallelRunConfig has no such parameter; {nearest_of(name, NAMES)}"
        case "value_error":
            return f"{error['msg'].removeprefix('Value error, ')}."
        case _:
            message = f"{error['msg'][:1].lower()}{error['msg'][1:]}"
            return f"{name}: {message}, not {error['input']!r}."


def _written(environment: Any) -> Any:
    if not isinstance(environment, Environment):
        return environment
    values = {name: getattr(environment, name) for name in EnvironmentForm.model_fields}
    return {name: value for name, value in values.items() if value}
