"""A batch deployment of a pipeline: the file of its pipeline, which runs as any other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs.azure.deployments.form import PipelineDeployment
from daskprs.azure.pipelines.file import is_of_component, way_to_run
from daskprs.azure.pipelines.forms import as_overrides
from daskprs.errors import UsageError
from daskprs.yaml_files.form import filled, ineffective
from daskprs.yaml_files.mistakes import Mistake, refuse

if TYPE_CHECKING:
    from daskprs.azure.assets import Assets
    from daskprs.yaml_files.document import Document

OF_A_PIPELINE = ("component", "job_definition")
OF_A_JOB = ("inputs", "outputs", "experiment_name", "display_name")


@dataclass(frozen=True)
class DeployedPipeline:
    """A pipeline with the settings of its deployment."""

    path: Path
    """The file of the pipeline."""
    overrides: tuple[str, ...]
    """Overrides that the deployment applies to the pipeline."""
    without_effect: tuple[str, ...]
    """Keys of the deployment that have no effect here."""


def is_of_pipeline(content: Any) -> bool:
    """Say whether the content of a deployment's file deploys a pipeline.

    A pipeline job of a component looks like one: see `is_job`.
    """
    if not isinstance(content, dict):
        return False
    return content.get("type") == "pipeline" or any(key in content for key in OF_A_PIPELINE)


def is_job(content: Any) -> bool:
    """Say whether a file is a pipeline job of a component: deployments give no inputs."""
    return is_of_component(content) and any(key in content for key in OF_A_JOB)


def refuse_pipeline_itself(document: Document) -> None:
    """Refuse a pipeline that is given where its deployment is meant, and name the way to run it."""
    if "jobs" in document.content:
        problem = way_to_run(document.content, Path(document.name).name)
        refuse([Mistake(document.place(("jobs",)), "jobs", str(problem))])


def pipeline_deployment_of(document: Document, assets: Assets) -> DeployedPipeline:
    """Return the pipeline that a document deploys, or refuse the document with all mistakes."""
    refuse_pipeline_itself(document)
    form, mistakes = filled(PipelineDeployment, document.content, document)
    path = Path()
    given = {key: document.content.get(key) for key in OF_A_PIPELINE}
    named = {key: value for key, value in given.items() if isinstance(value, str)}
    if not named and form is not None:
        problem = "it is missing: the file of the pipeline that is deployed"
        mistakes.append(Mistake(document.place(()), "component", problem))
    for key, reference in named.items():
        try:
            path = assets.file(reference, document.folder)
        except UsageError as error:
            mistakes.append(Mistake(document.place((key,)), key, str(error)))
    refuse(mistakes)
    if form is None:
        return DeployedPipeline(path, (), ())
    idle = (key.name for key in ineffective(form) if key.name != "$schema")
    return DeployedPipeline(path, as_overrides(form.settings), tuple(idle))
