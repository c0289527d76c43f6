"""A pipeline job that consists of a pipeline component: ``component:`` in place of ``jobs:``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs.azure.pipelines.forms.pipeline import ComponentJobForm, as_overrides
from daskprs.azure.pipelines.overrides import overridden
from daskprs.azure.pipelines.ports import texts_of
from daskprs.errors import UsageError
from daskprs.yaml_files.form import filled
from daskprs.yaml_files.mistakes import Mistake, refuse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs.azure.pipelines.caller_inputs import CallerInputs
    from daskprs.yaml_files.document import Document


def is_of_component(content: Any) -> bool:
    """Say whether the content of a file is such a job."""
    return isinstance(content, dict) and "component" in content and "jobs" not in content


def of_component(document: Document, given: CallerInputs) -> tuple[Path, CallerInputs]:
    """Return the component's file and its inputs; the caller's values override the job's.

    Overrides of steps apply to the component, all others to the job.

    Raises
    ------
    YamlError
        With every mistake in the job's own keys.

    """
    of_steps = tuple(one for one in given.overrides if one.startswith("jobs."))
    own = [one for one in given.overrides if one not in of_steps]
    form, mistakes = filled(ComponentJobForm, overridden(document.content, own), document)
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
        overrides=(*_names(form), *as_overrides(form.settings), *of_steps),
        inputs={**texts_of(form.inputs or {}, base, given.assets), **(given.inputs or {})},
        outputs={**texts_of(form.outputs or {}, base, given.assets), **(given.outputs or {})},
    )


def _names(form: ComponentJobForm) -> Iterator[str]:
    """Yield overrides that replace the component's names by the job's."""
    for key, name in {"name": form.name, "display_name": form.display_name}.items():
        if name is not None:
            yield f"{key}={json.dumps(name)}"
