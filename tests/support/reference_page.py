"""The tables of the reference of Azure's files and classes, made from the forms and signatures."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic_core import PydanticUndefined

from daskprs.azure.assets import AssetFile
from daskprs.azure.deployments.batch_deployment import BatchDeployment
from daskprs.azure.deployments.form import ModelDeployment, PipelineDeployment
from daskprs.azure.deployments.invocation_file import InvocationForm
from daskprs.azure.pipelines.forms import (
    CommandForm,
    ComponentJobForm,
    InnerPipelineForm,
    InputForm,
    OutputForm,
    ParallelForm,
    PipelineForm,
)
from daskprs.azure.system_flags import SYSTEM_FLAGS
from daskprs.azure.v1 import ParallelRunConfig, ParallelRunStep
from daskprs.azure.v1.config import ConfigFileForm, ConfigForm
from daskprs.inputs.mltable.form import MLTableForm
from daskprs.yaml_files.form import Effect, Form, keys_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "azure-files.md"
BEGIN, END = "<!-- begin: {} -->", "<!-- end: {} -->"
FILES: dict[str, type[Form]] = {
    "pipeline": PipelineForm,
    "pipeline job": ComponentJobForm,
    "inner pipeline": InnerPipelineForm,
    "parallel": ParallelForm,
    "command": CommandForm,
    "input": InputForm,
    "output": OutputForm,
    "batch deployment of a model": ModelDeployment,
    "batch deployment of a pipeline": PipelineDeployment,
    "invocation": InvocationForm,
    "assets": AssetFile,
    "parallel_run_config": ConfigFileForm,
    "mltable": MLTableForm,
}
CLASSES: dict[str, tuple[Any, type[Form] | None]] = {
    "BatchDeployment": (BatchDeployment, ModelDeployment),
    "ParallelRunConfig": (ParallelRunConfig, ConfigForm),
    "ParallelRunStep": (ParallelRunStep, None),
}
PORTS = (InputForm, OutputForm)
"""Forms with tables of their own: they stand wherever something has inputs and outputs."""
NO_NOTE = "&nbsp;"


class Row(NamedTuple):
    """One key or parameter."""

    name: str
    default: str
    effect: str
    note: str

    def __str__(self) -> str:
        """Return a line of a table."""
        return f"| `{self.name}` | {self.default} | {self.effect} | {self.note or NO_NOTE} |"


def tables() -> dict[str, str]:
    """Return each table by its name."""
    found = {name: _table("key", rows_of(form)) for name, form in FILES.items()}
    found["flags"] = _table("flag", of_flags())
    return found | {name: _table("parameter", of_class(*one)) for name, one in CLASSES.items()}


def rows_of(form: type[Form], prefix: str = "") -> Iterator[Row]:
    """Yield the keys of a form, those of forms inside included."""
    for key, field in zip(keys_of(form), form.model_fields.values(), strict=True):
        default = "" if field.default in (None, PydanticUndefined) else f"`{field.default}`"
        if field.is_required():
            default = "required"
        yield Row(prefix + key.name, default, key.effect.value, key.note)
        for inside in _forms_in(field.annotation):
            if inside in PORTS or key.effect is not Effect.WORKS:
                continue
            yield from rows_of(inside, f"{prefix}{key.name}.")


def of_flags() -> Iterator[Row]:
    """Yield the system flags."""
    for flag in SYSTEM_FLAGS:
        effect = Effect.NONE if flag.note.startswith(Effect.NONE.value) else Effect.WORKS
        note = flag.note.removeprefix(Effect.NONE.value).removeprefix(": ")
        note = f"the option `{flag.option}`" if flag.option is not None else note
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


def written(page: str) -> str:
    """Return the page with its tables as they ought to be."""
    return filled(page, tables())


def filled(page: str, made: Mapping[str, str]) -> str:
    """Return a page with tables in their places, which comments with their names mark."""
    for name, table in made.items():
        begin, end = BEGIN.format(name), END.format(name)
        before, _, rest = page.partition(begin)
        _, found, after = rest.partition(end)
        assert found, f"the page has no place for the table {name!r}: {begin} {end}"
        page = f"{before}{begin}\n\n{table}\n\n{end}{after}"
    return page


def _table(what: str, rows: Iterator[Row]) -> str:
    return "\n".join([f"| {what} | default | | |", "|---|---|---|---|", *map(str, rows)])


def _forms_in(annotation: Any) -> Iterator[type[Form]]:
    if isinstance(annotation, type) and issubclass(annotation, Form):
        yield annotation
    for one in getattr(annotation, "__args__", ()):
        yield from _forms_in(one)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
