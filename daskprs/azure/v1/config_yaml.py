"""The YAML file of a `ParallelRunConfig`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import yaml
from pydantic import AliasChoices, ConfigDict

from daskprs.azure.v1.compute import name_of_compute
from daskprs.azure.v1.config_form import ConfigForm
from daskprs.azure.v1.environment import Environment
from daskprs.yaml_files.document import Document
from daskprs.yaml_files.form import Form, filled, works
from daskprs.yaml_files.mistakes import refuse

if TYPE_CHECKING:
    from os import PathLike


class EnvironmentForm(Form):
    """An environment in the file: what it says of images and packages means nothing here."""

    model_config = ConfigDict(extra="ignore")

    name: str = works()
    version: str | None = works(None)
    environment_variables: dict[str, str] = works(
        {}, validation_alias=AliasChoices("environment_variables", "environmentVariables")
    )


class ConfigFileForm(ConfigForm):
    """What stands below the root key."""

    environment: EnvironmentForm | str = works()
    compute_target: str = works()


class FileForm(Form):
    """The whole file."""

    parallel_run_config: ConfigFileForm = works()


def from_yaml(path: str | PathLike[str]) -> dict[str, Any]:
    """Return the parameters that a file gives.

    Raises
    ------
    YamlError
        With every mistake in it.

    """
    document = Document.read(path)
    form, mistakes = filled(FileForm, document.content, document)
    refuse(mistakes)
    config = cast("FileForm", form).parallel_run_config
    given = {name: getattr(config, name) for name in ConfigForm.model_fields}
    if isinstance(config.environment, EnvironmentForm):
        given["environment"] = Environment(
            config.environment.name,
            version=config.environment.version,
            environment_variables=config.environment.environment_variables,
        )
    return given


def to_yaml(form: ConfigForm, path: str | PathLike[str]) -> None:
    """Write all parameters but those that are not given."""
    values = {name: getattr(form, name) for name in ConfigForm.model_fields}
    values["environment"] = _written(form.environment)
    values["compute_target"] = name_of_compute(form.compute_target)
    given = {name: value for name, value in values.items() if value is not None}
    text = yaml.safe_dump({"parallel_run_config": given}, sort_keys=False, allow_unicode=True)
    Path(path).write_text(text, encoding="utf-8")


def _written(environment: Any) -> Any:
    if not isinstance(environment, Environment):
        return environment
    values = {
        "name": environment.name,
        "version": environment.version,
        "environment_variables": dict(environment.environment_variables),
    }
    return {name: value for name, value in values.items() if value}
