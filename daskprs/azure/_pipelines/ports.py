"""The inputs and outputs of a pipeline itself, and the settings of steps that take them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._inputs.source.input_file import is_url
from daskprs._suggest import nearest_of
from daskprs.azure._assets import DEFAULT_DATASTORE
from daskprs.azure._expressions import (
    ExpressionError,
    Reference,
    filled_in,
    only_reference,
    parsed,
    references,
)
from daskprs.azure._pipelines.forms import InputForm, Inputs, OutputForm, Outputs
from daskprs.azure._pipelines.values import (
    Binding,
    as_type,
    at_own_path,
    at_path,
    foreign,
    takes_path,
    unknown,
)
from daskprs.azure._yaml_files.document import Document
from daskprs.azure._yaml_files.form import Form, filled, works
from daskprs.azure._yaml_files.mistakes import Mistake, whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from os import PathLike

    from daskprs.azure._assets import Assets
    from daskprs.azure._pipelines.component import YamlSource
    from daskprs.azure._pipelines.forms import PipelineJobForm, SettingsForm
    from daskprs.azure._pipelines.values import Values
    from daskprs.azure._yaml_files.document import Loc

LEFT_ALONE = {
    *("inputs", "outputs", "component", "command", "input_data", "code", "append_row_to", "jobs"),
    "args",
}
TEXTS_OF_A_TASK = {"program_arguments", "args", "append_row_to", "code"}
"""Keys whose expressions are filled in later, or refer to the step itself."""
LEFT_OUT = object()
"""In place of a value that depends on an input without one."""


@dataclass(frozen=True)
class Parent:
    """The pipeline that a step is in: the one of the file, or a step that is a pipeline itself."""

    name: str
    """The name of that step; empty for the pipeline of the file."""
    inputs: Mapping[str, Binding]
    """The inputs whose values are known before any step is wired."""
    store: str
    """The default datastore."""
    is_fresh: bool
    """Whether its steps reuse no earlier results."""
    run: str
    """The name of the run."""

    def step(self, name: str) -> str:
        """Return the whole name of one of its steps."""
        return f"{self.name}.{name}" if self.name else name

    def word(self, one: Reference, output: str = "", step: str = "") -> str | None:
        """Return the value of a one-word expression; None for any other expression."""
        words = {
            "name": f"{self.run}.{step}" if step else self.run,
            "output_name": output,
            "default_datastore": self.store,
        }
        return words.get(one.scope)

    def setting(self, one: Reference) -> Binding:
        """Return the value of an expression in a setting; refuse all but inputs of the pipeline."""
        if one.scope == "default_datastore":
            return Binding(self.store)
        if one.scope == "inputs" and one.of_parent and one.name in self.inputs:
            bound = self.inputs[one.name]
            if bound.is_foreign and isinstance(bound.value, str):
                msg = f"{one} is from a caller: it cannot be a setting, unless it is a number"
                raise ExpressionError(msg)
            return bound
        known = ", ".join(f"${{{{parent.inputs.{name}}}}}" for name in self.inputs) or "none"
        msg = f"{one} cannot stand here; inputs of the pipeline can: {known}"
        raise ExpressionError(msg)


def store_of(settings: SettingsForm | None) -> str:
    """Return the default datastore that settings name; empty if they name none."""
    store = (settings.default_datastore or settings.datastore) if settings else None
    return (store or "").removeprefix("azureml:")


class PipelinePorts:
    """Assigns values to the inputs and outputs of a pipeline, declared at a place of a file."""

    def __init__(self, form: PipelineJobForm, source: YamlSource, values: Values) -> None:
        self.values = values
        self._source = source
        settings = form.settings
        given = values.given
        self.inputs = {
            name: self._input(name, port, given.inputs.get(name))
            for name, port in (form.inputs or {}).items()
        }
        fresh = bool(settings and settings.force_rerun) or (
            getattr(form, "is_deterministic", None) is False
        )
        run = values.folder.path.name
        self.parent = Parent("", self.inputs, store_of(settings) or DEFAULT_DATASTORE, fresh, run)
        self.outputs = {
            name: self._output(name, port, given.outputs.get(name))
            for name, port in (form.outputs or {}).items()
        }
        self.refuse_unknown("--input", given.inputs, self.inputs)

    def refuse_unknown(self, flag: str, given: Iterable[str], known: Iterable[str]) -> None:
        """Refuse inputs or outputs from the caller that the pipeline does not have."""
        known = [*known]
        for name in given:
            if name not in known:
                problem = f"there is no {flag[2:]} {name!r}; {nearest_of(name, known)}"
                mistake = Mistake(self._source.place(), f"{flag} {name}", problem)
                self.values.mistakes.append(mistake)

    def _input(self, name: str, port: Any, given: str | None) -> Binding:
        values, source = self.values, self._source
        way: tuple[str, ...] = ("inputs", name)
        form = port if isinstance(port, InputForm) else None
        kind = as_type(form.type) if form else None
        if given is not None and is_place(port):
            return values.existing(at_path(Path.cwd() / given, kind), source, *way)
        if given is not None:
            return values.fitting(form, self._given(name, given, kind), source, *way)
        if form is None:
            return Binding(port)
        if form.place is not None:
            way = (*way, "path") if form.path is not None else way
            return values.existing(values.path(form.place, kind, source, *way), source, *way)
        if form.default is None and not form.optional:
            if values.given.with_inputs:
                values.wrong(f"it has no value: give it by --input {name}=…", source, *way)
            return unknown(kind)
        return values.fitting(form, Binding(form.default, kind), source, *way)

    def _given(self, name: str, given: str, kind: str | None) -> Binding:
        """Return a value that the caller gives."""
        if not self.values.given.is_served:
            value = given if kind == "string" else Document(given, f"--input {name}").content
            return Binding(value, kind)
        try:
            return foreign(given, kind)
        except ValueError as error:
            self.values.wrong(error, self._source, "inputs", name)
            return unknown(kind)

    def _output(self, name: str, port: Any, given: str | None) -> Binding:
        values = self.values
        form = port if isinstance(port, OutputForm) else None
        kind = as_type(form.type) if form else None
        if given is not None:
            return at_path(Path.cwd() / given, kind)
        if form is None or form.path is None:
            return at_own_path(values.folder.outputs / name, kind)
        way = ("outputs", name, "path")

        def word(one: Reference) -> str:
            found = self.parent.word(one, name)
            if found is None:
                msg = f"{one}: the place of an output cannot depend on it"
                raise ExpressionError(msg)
            return found

        try:
            text = filled_in(parsed(form.path), word)
        except ExpressionError as error:
            values.wrong(error, self._source, *way)
            return unknown(kind)
        return values.path(text, kind, self._source, *way, made=True)


def is_place(port: Any) -> bool:
    """Say whether an input of a pipeline takes a path, not a value."""
    if not isinstance(port, InputForm):
        return False
    has_value = port.type is not None or port.default is not None
    return takes_path(as_type(port.type)) or port.place is not None or not has_value


def filled_settings(
    content: Any, parent: Parent, source: YamlSource, mistakes: list[Mistake], at: Loc = ()
) -> Any:
    """Return a step's content with ``${{parent.inputs.x}}`` filled in, each with its type.

    A key is left out when an input in its value has no value. A value that cannot be filled in
    becomes None, with a mistake.
    """
    if isinstance(content, dict):
        left = TEXTS_OF_A_TASK if at == ("task",) else () if at else LEFT_ALONE
        found = {
            key: value
            if key in left
            else filled_settings(value, parent, source, mistakes, (*at, key))
            for key, value in content.items()
        }
        return {key: value for key, value in found.items() if value is not LEFT_OUT}
    if isinstance(content, list):
        items = enumerate(content)
        values = (filled_settings(one, parent, source, mistakes, (*at, i)) for i, one in items)
        return [value for value in values if value is not LEFT_OUT]
    if not isinstance(content, str) or "${{" not in content:
        return content
    try:
        return _setting(content, parent)
    except ExpressionError as error:
        mistakes.append(source.mistake(str(error), *at))
        return None


def _setting(text: str, parent: Parent) -> Any:
    parts = parsed(text)
    bound = {one: parent.setting(one) for one in references(parts)}
    only = only_reference(parts)
    if any(one.is_unknown for one in bound.values()) or (only and bound[only].value is None):
        return LEFT_OUT
    return bound[only].value if only else filled_in(parts, lambda one: bound[one].text)


def texts_of(ports: Mapping[str, Any], base: Path, assets: Assets) -> dict[str, str]:
    """Return forms and values of ports as the command line gives them; paths start at `base`."""
    found = {}
    for name, port in ports.items():
        value = port
        if isinstance(port, InputForm):
            value = port.default if port.place is None else _path(port.place, base, assets)
        elif isinstance(port, OutputForm):
            value = None if port.path is None else _path(port.path, base, assets)
        if value is not None:
            found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


class InvocationForm(Form):
    """The keys of the file that an endpoint is invoked with."""

    inputs: Inputs | None = works(None, "paths, references and values by name")
    outputs: Outputs | None = works(None, "the places of outputs, by name")


class Invocation(NamedTuple):
    """The inputs and outputs of an invocation, by name."""

    inputs: dict[str, str]
    outputs: dict[str, str]


def read_invocation(path: str | PathLike[str], assets: Assets) -> Invocation:
    """Return the inputs and outputs in a file, whose paths are relative to it; refuse mistakes."""
    document = Document.read(path)
    form = whole(*filled(InvocationForm, document.content or {}, document))
    ports = (form.inputs or {}, form.outputs or {})
    return Invocation(*(texts_of(one, document.folder, assets) for one in ports))


def _path(path: str, base: Path, assets: Assets) -> str:
    url = is_url(path) and not path.startswith("azureml:")
    return path if url else str(assets.place(path, base))
