"""A batch deployment of a pipeline: the file of its pipeline, which runs as any other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from daskprs.azure._deployments.form import PipelineDeployment
from daskprs.azure._file_kinds import ENDPOINT, OF_A_PIPELINE, PIPELINE, Use, kind_of
from daskprs.azure._pipelines.forms import as_overrides
from daskprs.azure._yaml_files.form import filled, ineffective
from daskprs.azure._yaml_files.mistakes import Mistake, refuse, whole
from daskprs.errors import UsageError

if TYPE_CHECKING:
    from daskprs.azure._assets import Assets
    from daskprs.azure._yaml_files.document import Document


@dataclass(frozen=True)
class DeployedPipeline:
    """A pipeline with the settings of its deployment."""

    path: Path
    """The file of the pipeline."""
    overrides: tuple[str, ...]
    """Overrides that the deployment applies to the pipeline."""
    without_effect: tuple[str, ...]
    """Keys of the deployment that have no effect here."""


def refuse_other_kinds(document: Document) -> None:
    """Refuse a file that is given where a deployment is meant, and name the way to run it."""
    content = document.content
    is_pipeline = isinstance(content, dict) and "jobs" in content
    kind = PIPELINE if is_pipeline else kind_of(content)
    if kind is not None and (is_pipeline or kind is ENDPOINT or kind.use is Use.REFUSED):
        told = kind.told(Path(document.name).name)
        refuse([document.mistake(("jobs",) if is_pipeline else (), told)])


def pipeline_deployment_of(document: Document, assets: Assets) -> DeployedPipeline:
    """Return the pipeline that a document deploys, or refuse the document with all mistakes."""
    refuse_other_kinds(document)
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
            mistakes.append(document.mistake((key,), str(error)))
    form = whole(form, mistakes)
    idle = (key.name for key in ineffective(form))
    return DeployedPipeline(path, as_overrides(form.settings), tuple(idle))
