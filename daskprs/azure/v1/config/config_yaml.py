"""The YAML file of a `ParallelRunConfig`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import yaml
from pydantic import AliasChoices, ConfigDict, model_validator

from daskprs.azure.v1.config.compute import name_of_compute
from daskprs.azure.v1.config.config_form import ConfigForm
from daskprs.azure.v1.config.environment import Environment
from daskprs.yaml_files.document import Document
from daskprs.yaml_files.form import Form, filled, without_effect, works
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

    def made(self) -> Environment:
        """Return the environment."""
        variables = self.environment_variables
        return Environment(self.name, version=self.version, environment_variables=variables)


class ConfigFileForm(ConfigForm):
    """What stands below the root key; environments and computes are names, in one of two ways."""

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

    def any_environment(self) -> Environment | str:
        """Return the environment that the file names.

        Raises
        ------
        YamlError
            With every mistake in the file of a folder that it names.

        """
        if isinstance(self.environment, EnvironmentForm):
            return self.environment.made()
        place = self.environment or self.environment_dir_path
        file = os.path.join(place or "", "azureml_environment.json")  # noqa: PTH118 - any text
        if place is not None and os.path.isfile(file):  # noqa: PTH113 - the same
            document = Document.read(file)
            form, mistakes = filled(EnvironmentForm, document.content, document)
            refuse(mistakes)
            return cast("EnvironmentForm", form).made()
        if self.environment is not None:
            return self.environment
        name = self.environment_name or Path(place or "").name
        return Environment(name, version=self.environment_version)


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
    given["environment"] = config.any_environment()
    given["compute_target"] = config.compute_target or config.compute_target_name
    return given


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
    values = {
        "name": environment.name,
        "version": environment.version,
        "environment_variables": dict(environment.environment_variables),
    }
    return {name: value for name, value in values.items() if value}
