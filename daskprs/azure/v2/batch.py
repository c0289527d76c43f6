"""Batch endpoints and their deployments, as objects."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from daskprs.azure._deployments.form import (
    DeploymentSettings,
    ModelDeployment,
    PipelineDeployment,
)
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
from daskprs.azure.v2.entity import Entity, write_yaml
from daskprs.errors import OptionError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping
    from typing import IO


class BatchEndpointDefaults(Entity):
    """The deployment that an endpoint's invocations use."""

    deployment_name: str | None = None

    def __getitem__(self, name: str) -> Any:
        """Return a key: notebooks also use the object as a dict."""
        return {one: getattr(self, one) for one in self.keys()}[name]

    def __iter__(self) -> Iterator[str]:
        """Yield the keys; ``in`` asks for them, too."""
        return iter(self.keys())

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, name, value)


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


class ModelBatchDeploymentSettings(Entity, form=DeploymentSettings):
    """The options with which a deployment of a model processes its files."""

    PARTS: ClassVar[Mapping[str, type[Entity]]] = {"retry_settings": BatchRetrySettings}


class ModelBatchDeployment(Entity, form=ModelDeployment):
    """A deployment of a model; settings are an object of their own, or keywords beside it.

    Its keys are those of [the file](../reference/azure-deployment-files.md).
    """

    PARTS: ClassVar[Mapping[str, type[Entity]]] = {
        **ModelBatchDeploymentSettings.PARTS,
        "model": Model,
        "code_configuration": CodeConfiguration,
        "environment": Environment,
        "resources": ResourceConfiguration,
        "settings": ModelBatchDeploymentSettings,
    }
    PLACES: ClassVar[frozenset[str]] = frozenset({"model", "code_path"})

    type: str | None = "model"
    code_path: str | os.PathLike[str] | None = None
    scoring_script: str | os.PathLike[str] | None = None

    def values(self) -> dict[str, Any]:
        """Return the deployment as plain values."""
        found = super().values()
        if isinstance(self.model, Model):
            path = self.model.values().get("path") or self.model.id
            named = {} if self.model.name is None else {"name": self.model.name}
            found["model"] = {**named, "path": path}
        code, script = found.pop("code_path", None), found.pop("scoring_script", None)
        if script is not None:
            place = {} if code is None else {"code": code}
            found["code_configuration"] = {**place, "scoring_script": script}
        return found


class BatchDeployment(ModelBatchDeployment):
    """A deployment of a model, with the settings among its own keys, as older notebooks have it."""

    type: str | None = None


class PipelineComponentBatchDeployment(Entity, form=PipelineDeployment):
    """A deployment of a pipeline component."""

    PLACES: ClassVar[frozenset[str]] = frozenset({"component", "job_definition"})

    type: str | None = "pipeline"

    def values(self) -> dict[str, Any]:
        """Return the deployment as plain values; a component that is in no file stands in them."""
        component, found = self.component, super().values()
        if isinstance(component, Component):
            if component.kind != "pipeline":
                msg = (
                    f"the deployment {self.name!r}: {component.title!r} is a {component.kind} "
                    "component. Call it in the function of a @pipeline, and deploy that."
                )
                raise OptionError(msg)
            found["component"] = component.reference()
        if not isinstance(self.job_definition, str | Path | None):
            msg = (
                f"the deployment {self.name!r}: job_definition is the file of a pipeline job here, "
                "since the record of a job has no pipeline. Deploy that of the job: "
                "component=pipeline_job.component."
            )
            raise OptionError(msg)
        return found

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
