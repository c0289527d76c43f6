"""The tables of the pages on Azure's files and classes, made from the forms and signatures."""

from __future__ import annotations

import inspect
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic_core import PydanticUndefined

from daskprs.azure._assets import AssetFile
from daskprs.azure._deployments.batch_deployment import BatchDeployment
from daskprs.azure._deployments.form import (
    DeploymentSettings,
    ModelDeployment,
    PipelineDeployment,
)
from daskprs.azure._mltable.form import MLTableForm
from daskprs.azure._pipelines.forms import (
    CommandForm,
    ComponentJobForm,
    InnerPipelineForm,
    InputForm,
    JobForm,
    OutputForm,
    ParallelForm,
    PipelineForm,
    SettingsForm,
    StepForm,
)
from daskprs.azure._pipelines.ports import InvocationForm
from daskprs.azure._system_flags import SYSTEM_FLAGS
from daskprs.azure._yaml_files.form import Effect, Form, keys_of
from daskprs.azure.v1 import ParallelRunConfig, ParallelRunStep
from daskprs.azure.v1.config import ConfigFileForm, ConfigForm
from tests.support.filled_page import filled

if TYPE_CHECKING:
    from collections.abc import Iterator

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


class File(NamedTuple):
    """The form of a file, or of a part of one."""

    form: type[Form]
    shared: type[Form] | None = None
    """A form whose keys stand in a table of their own, and not in this one too."""


FILES: dict[str, dict[str, File]] = {
    "azure-files.md": {"assets": File(AssetFile)},
    "azure-pipeline-files.md": {
        "all": File(JobForm),
        "pipeline": File(PipelineForm, JobForm),
        "pipeline job": File(ComponentJobForm, PipelineForm),
        "settings": File(SettingsForm),
        "inner pipeline": File(InnerPipelineForm, JobForm),
        "step": File(StepForm, JobForm),
        "parallel": File(ParallelForm, StepForm),
        "command": File(CommandForm, StepForm),
        "input": File(InputForm),
        "output": File(OutputForm),
    },
    "azure-deployment-files.md": {
        "batch deployment of a model": File(ModelDeployment, DeploymentSettings),
        "settings of a deployment": File(DeploymentSettings),
        "batch deployment of a pipeline": File(PipelineDeployment),
        "invocation": File(InvocationForm),
    },
    "azure-v1-classes.md": {"parallel_run_config": File(ConfigFileForm, ConfigForm)},
    "mltable.md": {"mltable": File(MLTableForm)},
}
CLASSES: dict[str, dict[str, tuple[Any, type[Form] | None]]] = {
    "azure-deployment-files.md": {"BatchDeployment": (BatchDeployment, ModelDeployment)},
    "azure-v1-classes.md": {
        "ParallelRunConfig": (ParallelRunConfig, ConfigForm),
        "ParallelRunStep": (ParallelRunStep, None),
    },
}
PAGES = [REFERENCE / name for name in FILES]
APART = (InputForm, OutputForm, SettingsForm, DeploymentSettings)
"""Forms with tables of their own: they stand in several files."""
NO_NOTE = "&nbsp;"


class Row(NamedTuple):
    """One key or parameter."""

    name: str
    default: str
    effect: str
    note: str

    @property
    def cells(self) -> str:
        """Return the line of a table behind the name."""
        return f"{self.default} | {self.effect} | {self.note or NO_NOTE}"


def tables(page: str) -> dict[str, str]:
    """Return each table of a page by its name."""
    found = {name: _table("key", of_file(one)) for name, one in FILES[page].items()}
    if page == "azure-pipeline-files.md":
        found["flags"] = _table("flag", of_flags())
    classes = CLASSES.get(page, {})
    return found | {name: _table("parameter", of_class(*one)) for name, one in classes.items()}


def of_file(file: File) -> Iterator[Row]:
    """Yield the keys of a file, without those that are shared and mean the same here."""
    shared = set() if file.shared is None else set(rows_of(file.shared))
    return (row for row in rows_of(file.form) if row not in shared)


def rows_of(form: type[Form], prefix: str = "") -> Iterator[Row]:
    """Yield the keys of a form, those of forms inside included."""
    for key, field in zip(keys_of(form), form.model_fields.values(), strict=True):
        default = "" if field.default in (None, PydanticUndefined) else f"`{field.default}`"
        if field.is_required():
            default = "required"
        yield Row(prefix + key.name, default, key.effect.value, key.note)
        for inside in _forms_in(field.annotation):
            if inside in APART or key.effect is not Effect.WORKS:
                continue
            yield from rows_of(inside, f"{prefix}{key.name}.")


def of_flags() -> Iterator[Row]:
    """Yield the system flags."""
    for flag in SYSTEM_FLAGS:
        effect = Effect.NONE if flag.note.startswith(Effect.NONE.value) else Effect.WORKS
        note = flag.note.removeprefix(Effect.NONE.value).removeprefix(": ")
        note = note if flag.note else f"the option `{flag.name}`"
        yield Row(f"--{flag.name}", "", effect.value, note)


def of_class(one: Any, form: type[Form] | None) -> Iterator[Row]:
    """Yield the parameters of a class; what becomes of each is what becomes of the key.

    Of a class without a form it stands in its documentation, behind the name.
    """
    effects = {} if form is None else {key.name: key for key in keys_of(form)}
    for name, parameter in inspect.signature(one).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        known = effects.get(name)
        effect, note = Effect.WORKS, _told(one, name)
        if known is not None:
            effect, note = known.effect, known.note
        elif note.startswith("Without effect"):
            effect, note = Effect.NONE, note.partition(": ")[2]
        default = "" if parameter.default is None else f"`{parameter.default}`"
        default = "required" if parameter.default is parameter.empty else default
        yield Row(name, default, effect.value, note.rstrip("."))


def _told(one: Any, name: str) -> str:
    """Return the sentence that the documentation of a class has for a parameter."""
    lines = [line.strip() for line in inspect.cleandoc(one.__doc__).splitlines()]
    for at, line in enumerate(lines):
        names = line.partition(" : ")[0].split(", ")
        if name in names and at + 1 < len(lines):
            text = " ".join(lines[at + 1 : at + 5])
            return text.partition(". ")[0].replace("|", "or")
    return ""


def written(page: Path) -> str:
    """Return the text of a page with its tables as they ought to be."""
    return filled(page.read_text(), tables(page.name))


def _table(what: str, rows: Iterator[Row]) -> str:
    """Return a table. Neighbours of which the same is said share a line."""
    lines = [f"| {what} | default | effect | note |", "|---|---|---|---|"]
    for cells, group in groupby(rows, lambda row: row.cells):
        lines.append(f"| {', '.join(f'`{row.name}`' for row in group)} | {cells} |")
    return "\n".join(lines)


def _forms_in(annotation: Any) -> Iterator[type[Form]]:
    if isinstance(annotation, type) and issubclass(annotation, Form):
        yield annotation
    for one in getattr(annotation, "__args__", ()):
        yield from _forms_in(one)


if __name__ == "__main__":
    for each in PAGES:
        each.write_text(written(each))
