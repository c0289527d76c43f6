"""Batch endpoints and their deployments, as objects."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from daskprs.azure._file_kinds import is_of_pipeline
from daskprs.azure._yaml_files.document import Document
from daskprs.azure.v2.asset import Model
from daskprs.azure.v2.component import Component
from daskprs.azure.v2.entities import (
    BatchRetrySettings,
    CodeConfiguration,
    Environment,
    ResourceConfiguration,
)
from daskprs.azure.v2.entity import Entity, local_place, plain, write_yaml
from daskprs.azure.v2.shell_command import given
from daskprs.errors import OptionError

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from typing import IO


@dataclass(kw_only=True)
class BatchEndpointDefaults(Entity):
    """The deployment that an endpoint's invocations use."""

    deployment_name: str | None = None


@dataclass(kw_only=True)
class BatchEndpoint(Entity):
    """An endpoint: a name for deployments, and the default one among them."""

    PARTS: ClassVar[Mapping[str, type[Entity]]] = {"defaults": BatchEndpointDefaults}

    name: str | None = None
    description: str | None = None
    tags: Mapping[str, Any] | None = None
    properties: Mapping[str, Any] | None = None
    auth_mode: str | None = None
    location: str | None = None
    defaults: BatchEndpointDefaults | Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.defaults = self.defaults or BatchEndpointDefaults()


@dataclass(kw_only=True)
class ModelBatchDeploymentSettings(Entity):
    """The options with which a deployment of a model processes its files."""

    PARTS: ClassVar[Mapping[str, type[Entity]]] = {"retry_settings": BatchRetrySettings}

    mini_batch_size: int | None = None
    instance_count: int | None = None
    max_concurrency_per_instance: int | None = None
    output_action: str | None = None
    output_file_name: str | None = None
    retry_settings: BatchRetrySettings | Mapping[str, Any] | None = None
    environment_variables: Mapping[str, str] | None = None
    error_threshold: int | None = None
    logging_level: str | None = None


@dataclass(kw_only=True)
class _ModelDeployment(Entity):
    """The keys that both kinds of deployments of a model share."""

    PARTS: ClassVar[Mapping[str, type[Entity]]] = {
        "model": Model,
        "code_configuration": CodeConfiguration,
        "environment": Environment,
        "resources": ResourceConfiguration,
    }
    LEFT_OUT: ClassVar[frozenset[str]] = frozenset({"$schema", "type"})

    name: str
    endpoint_name: str | None = None
    description: str | None = None
    tags: Mapping[str, Any] | None = None
    properties: Mapping[str, Any] | None = None
    model: str | os.PathLike[str] | Model | None = None
    code_configuration: CodeConfiguration | Mapping[str, Any] | None = None
    environment: str | Environment | None = None
    compute: str | None = None
    resources: ResourceConfiguration | Mapping[str, Any] | None = None
    code_path: str | os.PathLike[str] | None = None
    scoring_script: str | os.PathLike[str] | None = None

    def values(self) -> dict[str, Any]:
        """Return the deployment as plain values."""
        found = super().values()
        if isinstance(self.model, Model):
            path = self.model.values().get("path") or self.model.id
            found["model"] = given(name=self.model.name, path=path)
        elif self.model is not None:
            found["model"] = local_place(self.model, self._base)
        code, script = found.pop("code_path", None), found.pop("scoring_script", None)
        if script is not None:
            place = {} if code is None else {"code": local_place(code, self._base)}
            found["code_configuration"] = {**place, "scoring_script": script}
        return found


@dataclass(kw_only=True)
class ModelBatchDeployment(_ModelDeployment):
    """A deployment of a model, whose settings are an object of their own.

    Its keys are those of [the file](../reference/azure-deployment-files.md).
    """

    PARTS: ClassVar[Mapping[str, type[Entity]]] = {
        **_ModelDeployment.PARTS,
        "settings": ModelBatchDeploymentSettings,
    }

    settings: ModelBatchDeploymentSettings | Mapping[str, Any] | None = None

    def values(self) -> dict[str, Any]:
        """Return the deployment as plain values."""
        return {"type": "model", **super().values()}


@dataclass(kw_only=True)
class BatchDeployment(ModelBatchDeploymentSettings, _ModelDeployment):
    """A deployment of a model, with the settings among its own keys, as older notebooks have it."""

    PARTS: ClassVar[Mapping[str, type[Entity]]] = {
        **_ModelDeployment.PARTS,
        **ModelBatchDeploymentSettings.PARTS,
    }


@dataclass(kw_only=True)
class PipelineComponentBatchDeployment(Entity):
    """A deployment of a pipeline component."""

    LEFT_OUT: ClassVar[frozenset[str]] = frozenset({"$schema", "type"})

    name: str
    endpoint_name: str | None = None
    description: str | None = None
    tags: Mapping[str, Any] | None = None
    component: Component | str | None = None
    settings: Mapping[str, Any] | None = None

    def values(self) -> dict[str, Any]:
        """Return the deployment as plain values; a component that is in no file stands in them."""
        component = self.component
        if isinstance(component, Component):
            if component.kind != "pipeline":
                msg = (
                    f"the deployment {self.name!r}: {component.title!r} is a {component.kind} "
                    "component. Call it in the function of a @pipeline, and deploy that."
                )
                raise OptionError(msg)
            found: Any = component.reference()
        else:
            found = None if component is None else local_place(component, self._base)
        names = ("name", "endpoint_name", "description", "tags", "settings")
        whole = {name: plain(getattr(self, name)) for name in names} | {"component": found}
        kept = {name: value for name, value in whole.items() if value not in (None, {})}
        return {"type": "pipeline", **kept}

    def dump(self, dest: str | os.PathLike[str] | IO[str]) -> None:
        """Write the deployment as YAML.

        Raises
        ------
        OptionError
            For a component that is in no file, since the YAML file names one.

        """
        values = self.values()
        if isinstance(values.get("component"), dict):
            msg = (
                f"dump: the component of the deployment {self.name!r} is in no file. Write it by "
                'component.dump("pipeline.yml"), and deploy component="pipeline.yml".'
            )
            raise OptionError(msg)
        write_yaml(values, dest)


def load_batch_endpoint(source: str | os.PathLike[str]) -> BatchEndpoint:
    """Read a batch endpoint from its YAML file."""
    return BatchEndpoint.load(Path(source))


def load_batch_deployment(
    source: str | os.PathLike[str],
) -> ModelBatchDeployment | BatchDeployment | PipelineComponentBatchDeployment:
    """Read a deployment of a model or of a pipeline from its YAML file."""
    content = Document.read(source).content
    if is_of_pipeline(content):
        return PipelineComponentBatchDeployment.load(source)
    is_newer = isinstance(content, dict) and ("settings" in content or "type" in content)
    return (ModelBatchDeployment if is_newer else BatchDeployment).load(source)
