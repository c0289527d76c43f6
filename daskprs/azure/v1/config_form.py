"""The parameters of `ParallelRunConfig`, which are the keys of its YAML file, and their rules."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import yaml
from pydantic import AliasChoices, ConfigDict, field_validator, model_validator

from daskprs.azure.v1.environment import Environment, name_of_compute
from daskprs.errors import OptionError
from daskprs.options.rules import check_number
from daskprs.options.run_options import TABLE
from daskprs.yaml_files.document import Document
from daskprs.yaml_files.form import F, Form, filled, without_effect, works
from daskprs.yaml_files.mistakes import refuse

if TYPE_CHECKING:
    from os import PathLike

LEVELS = {"WARN": "WARNING", "FATAL": "CRITICAL"}
"""Other names that Python's logging has."""
RULES = {"node_count": check_number(1)}
"""Rules that differ from those of `daskprs.RunOptions`, where None is allowed."""
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
        note="its environment_variables; packages are those of the Python that runs"
    )
    entry_script: str = works()
    error_threshold: int = works()
    output_action: str = works()
    compute_target: Any = without_effect("it runs here, or on the cluster of `client`", ...)
    node_count: int = works(note="as many nodes at most")
    process_count_per_node: int | None = works(None)
    mini_batch_size: int | str | None = works(None)
    source_directory: str | None = works(None)
    description: str | None = without_effect("for people")
    logging_level: str = works("INFO")
    run_invocation_timeout: int | float = works(60)
    run_max_try: int = works(3)
    append_row_file_name: str | None = works(None)
    allowed_failed_count: int | None = works(None)
    allowed_failed_percent: int | float | None = works(None)
    partition_keys: list[str] | None = works(None)
    environment_variables: dict[str, str] | None = works(None)

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
        below = getattr(self.environment, "environment_variables", {})
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
    environment_variables: dict[str, str] = works(
        {}, validation_alias=AliasChoices("environment_variables", "environmentVariables")
    )


class ConfigFileForm(ConfigForm):
    """The keys below the root key; environments and computes are named in one of two ways."""

    environment: EnvironmentForm | str | None = works(None, "or its name, or its folder")
    environment_name: str | None = works(None)
    environment_version: str | None = works(None, "for people")
    environment_dir_path: str | None = works(
        None, "the name and the variables of its `azureml_environment.json`"
    )
    compute_target: str | None = without_effect("it runs here, or on the cluster of `client`")
    compute_target_name: str | None = without_effect("the same")
    input_format: Any = without_effect("the dataset says it")

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


def from_yaml(path: str | PathLike[str]) -> dict[str, Any]:
    """Return the parameters that a file gives."""
    config = _read(FileForm, path).parallel_run_config
    given = {name: getattr(config, name) for name in ConfigForm.model_fields}
    given["environment"] = config.named_environment()
    given["compute_target"] = config.compute_target or config.compute_target_name
    return given


def _read(form: type[F], path: str | PathLike[str]) -> F:
    """Return the form of a file, or raise all mistakes in the file."""
    document = Document.read(path)
    one, mistakes = filled(form, document.content, document)
    refuse(mistakes)
    return cast("F", one)


def to_yaml(form: ConfigForm, path: str | PathLike[str]) -> None:
    """Write all parameters that are given."""
    values = {name: getattr(form, name) for name in ConfigForm.model_fields}
    values["environment"] = _written(form.environment)
    values["compute_target"] = name_of_compute(form.compute_target)
    given = {name: value for name, value in values.items() if value is not None}
    text = yaml.safe_dump({"parallel_run_config": given}, sort_keys=False, allow_unicode=True)
    Path(path).write_text(text, encoding="utf-8")


def _written(environment: Any) -> Any:
    if not isinstance(environment, Environment):
        return environment
    values = {name: getattr(environment, name) for name in EnvironmentForm.model_fields}
    return {name: value for name, value in values.items() if value}
