"""A pipeline job that consists of a pipeline component: ``component:`` in place of ``jobs:``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from daskprs.azure.invocation_file import texts_of
from daskprs.azure.pipeline_form import SettingsForm, as_overrides
from daskprs.azure.port_form import SHOWN_IN_THE_STUDIO, Inputs, Outputs
from daskprs.azure.step_form import HERE
from daskprs.errors import UsageError
from daskprs.yaml_files.form import Form, filled, without_effect, works
from daskprs.yaml_files.mistakes import Mistake, refuse

if TYPE_CHECKING:
    from daskprs.azure.pipeline_file import Given
    from daskprs.yaml_files.document import Document


class PipelineJobForm(Form):
    """The keys of such a job."""

    schema_: str | None = without_effect("the keys are checked all the same", alias="$schema")
    type: Literal["pipeline"] | None = works(None)
    component: str = works(note="the file of a pipeline component, or an asset")
    inputs: Inputs | None = works(None)
    outputs: Outputs | None = works(None)
    settings: SettingsForm | None = works(None)
    name: str | None = without_effect(SHOWN_IN_THE_STUDIO)
    display_name: str | None = without_effect(SHOWN_IN_THE_STUDIO)
    description: str | None = without_effect(SHOWN_IN_THE_STUDIO)
    experiment_name: str | None = without_effect(SHOWN_IN_THE_STUDIO)
    tags: dict[str, Any] | None = without_effect(SHOWN_IN_THE_STUDIO)
    properties: dict[str, Any] | None = without_effect(SHOWN_IN_THE_STUDIO)
    compute: Any = without_effect(HERE)
    identity: Any = without_effect("nobody has to be authorized here")


def is_of_component(content: Any) -> bool:
    """Say whether the content of a file is such a job."""
    return isinstance(content, dict) and "component" in content and "jobs" not in content


def of_component(document: Document, given: Given) -> tuple[Path, Given]:
    """Return the file of the component, and what it is given: the caller wins over the job.

    Raises
    ------
    YamlError
        With every mistake in the job's own keys.

    """
    form, mistakes = filled(PipelineJobForm, document.content, document)
    base = Path(document.name).absolute().parent
    path = base
    if form is not None:
        try:
            path = given.assets.file(form.component, base)
        except UsageError as error:
            mistakes.append(Mistake(document.place(("component",)), "component", str(error)))
    refuse(mistakes)
    if form is None:
        return path, given
    return path, replace(
        given,
        overrides=(*as_overrides(form.settings), *given.overrides),
        inputs={**texts_of(form.inputs or {}, base, given.assets), **(given.inputs or {})},
        outputs={**texts_of(form.outputs or {}, base, given.assets), **(given.outputs or {})},
    )
