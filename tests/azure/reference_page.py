"""The tables of the reference of Azure's files and classes, made from the forms and signatures."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic_core import PydanticUndefined

from daskprs.azure.batch_deployment import BatchDeployment
from daskprs.azure.deployment_form import ModelDeployment, PipelineDeployment
from daskprs.yaml_files.form import Effect, Form, keys_of

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "azure-files.md"
BEGIN, END = "<!-- begin: {} -->", "<!-- end: {} -->"
FILES: dict[str, type[Form]] = {
    "batch deployment of a model": ModelDeployment,
    "batch deployment of a pipeline": PipelineDeployment,
}
CLASSES: dict[str, Any] = {"BatchDeployment": BatchDeployment}
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
    return found | {name: _table("parameter", of_class(one)) for name, one in CLASSES.items()}


def rows_of(form: type[Form], prefix: str = "") -> Iterator[Row]:
    """Yield the keys of a form, those of forms inside included."""
    for key, field in zip(keys_of(form), form.model_fields.values(), strict=True):
        default = "" if field.default in (None, PydanticUndefined) else f"`{field.default}`"
        if field.is_required():
            default = "required"
        yield Row(prefix + key.name, default, key.effect.value, key.note)
        for inside in _forms_in(field.annotation):
            yield from rows_of(inside, f"{prefix}{key.name}.")


def of_class(one: Any) -> Iterator[Row]:
    """Yield the parameters of a class; what becomes of each is what becomes of the key."""
    effects = {key.name: key for key in keys_of(ModelDeployment)}
    for name, parameter in inspect.signature(one).parameters.items():
        known = effects.get(name)
        effect = known.effect if known is not None else Effect.WORKS
        default = parameter.default
        shown = "" if default is None else "required" if default is parameter.empty else default
        yield Row(name, f"{shown}", effect.value, "" if known is None else known.note)


def written(page: str) -> str:
    """Return a page with its tables as they ought to be."""
    for name, table in tables().items():
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
