"""The wiring of a pipeline's steps: the value of each input and output in a run."""

from __future__ import annotations

import json
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from daskprs._agent.node.environment import ASSETS
from daskprs._agent.script.snapshot import source_files
from daskprs._suggest import nearest_of
from daskprs.azure._expressions import (
    ExpressionError,
    Reference,
    filled_in,
    named,
    only_reference,
    parsed,
    references,
)
from daskprs.azure._pipelines.forms import FILE_TYPES, InputForm, OutputForm
from daskprs.azure._pipelines.values import (
    KINDS,
    Binding,
    as_type,
    at_own_path,
    at_path,
    takes_path,
    unknown,
)
from daskprs.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from daskprs.azure._pipelines.component import Declared
    from daskprs.azure._pipelines.ports import Parent, PipelinePorts

ARTIFACTS = "artifacts"
"""Azure's name for the output that holds everything that a command leaves."""


RETURNED_IS_READ = "daskprs.azure.v2.function_component"
"""The module of commands that read a value from the path of what a function has returned."""
ASKS = "get_model_path"
"""The name of the function by which scripts look up models."""
BLOBS = b"azure.storage.blob"
"""The module that code imports if it reads blobs."""


class Wiring:
    """Gives values to the inputs and outputs of a pipeline's steps; `broken` ones were not read.

    `parents` has the pipeline around each step, unless that is the one of the file.
    """

    def __init__(
        self,
        ports: PipelinePorts,
        steps: Mapping[str, Declared],
        broken: Collection[str] = (),
        parents: Mapping[str, Parent] = MappingProxyType({}),
    ) -> None:
        self._parents = parents
        self._ports = ports
        self._steps = steps
        self._broken = broken
        self._values = ports.values
        self.folder = ports.values.folder
        self.given = ports.values.given
        self._writers: dict[tuple[str, str], tuple[str, str]] = {}
        """The step and output that write each output of a pipeline, by its step and name."""
        self._asked_types: dict[tuple[str, str], str | None] = {}
        """The types that a pipeline around asks of the outputs of an inner one."""
        self._outputs_of: dict[str, dict[str, Binding]] = {}
        for name, step in steps.items():  # a step that is a pipeline comes before its own steps
            self._outputs_of[name] = self._outputs(step)
        self._find_inner_writers()
        self.outputs_of = {
            name: self._outputs_of[name] for name, step in steps.items() if not step.is_pipeline
        }
        """The outputs of each step that runs."""
        known = [f"{name}.{one}" for name, found in self._outputs_of.items() for one in found]
        ports.refuse_unknown("--output", self.given.outputs, [*ports.outputs, *known])
        self._inputs_of: dict[str, dict[str, Binding]] = {}
        self._asked: set[str] = set()
        for name in steps:
            self.inputs_of(name)
        for name in steps:
            self._take_what_is_there(name)

    def parent(self, step: Declared) -> Parent:
        """Return the pipeline that a step is in."""
        return self._parents.get(step.name, self._ports.parent)

    def inputs_of(self, name: str) -> dict[str, Binding]:
        """Return the inputs of a step; an input that depends on itself is an ExpressionError."""
        if name not in self._inputs_of:
            if name in self._asked:
                msg = f"the inputs of the step {name!r} depend on themselves"
                raise ExpressionError(msg)
            self._asked.add(name)
            self._inputs_of[name] = self._inputs(self._steps[name])
        return self._inputs_of[name]

    def needs(self, name: str) -> set[str]:
        """Return the steps that must end before this step.

        The steps of an inner pipeline need what any input of it needs.
        """
        found = {maker for one in self.inputs_of(name).values() for maker in one.makers}
        around = self.parent(self._steps[name]).name
        return found | self.needs(around) if around else found

    def shares(self, name: str) -> bool:
        """Say whether a step's outputs overlap its inputs or other steps' outputs."""
        others = [one for one in self.inputs_of(name).values() if one.is_path]
        for step, made in self.outputs_of.items():
            others += made.values() if step != name else ()
        return any(one.overlaps(own) for one in others for own in self.outputs_of[name].values())

    def is_there(self, name: str) -> bool:
        """Say whether all input paths of a step exist; mistakes report those that do not."""
        paths = [one for one in self.inputs_of(name).values() if one.is_path]
        return all(one.value and one.path.exists() for one in paths)

    def port_variables(self, name: str) -> dict[str, str]:
        """Return the environment variables with the inputs and outputs of a step."""
        kinds = {"INPUT": self.inputs_of(name), "OUTPUT": self.outputs_of[name]}
        return {
            f"AZURE_ML_{kind}_{port}": bound.text or ""
            for kind, ports in kinds.items()
            for port, bound in ports.items()
        }

    def asset_variables(self, code: Path | None, line: str = "") -> dict[str, str]:
        """Return the variable that has all assets, if code or the line of a command may ask.

        Only then do they belong to the step: otherwise each new asset would run the step again.
        """
        paths = self.given.assets.paths
        asks = paths and (ASKS in line or (code is not None and _names(code, ASKS.encode())))
        return {ASSETS: json.dumps(dict(paths))} if asks else {}

    def may_read_blobs(self, code: Path | None) -> bool:
        """Say whether code may read blobs of the datastores, of which its step does not know."""
        is_given = bool(self.given.assets.datastores)
        return is_given and code is not None and _names(code, BLOBS)

    def resolved(self, step: Declared, one: Reference) -> str | None:
        """Return the value of an expression in a step; None for an input that was not given."""
        word = self.parent(step).word(one, step=step.name)
        if word is not None:
            return word
        match one:
            case Reference("inputs", of_parent=False):
                found = self.inputs_of(step.name)
                if one.name in self._inputs_around(step).keys() - found.keys():
                    right = one._replace(of_parent=True)
                    msg = f"{one} is an input of the pipeline, not of the step: write {right}"
                    raise ExpressionError(msg)
                return named(one, found).text
            case Reference("outputs", of_parent=False):
                return named(one, self.outputs_of[step.name]).text
            case Reference("inputs", step=None):
                return named(one, self._inputs_around(step)).text
        msg = f"{one}: bind it to an input or an output of the step, and name that one here"
        raise ExpressionError(msg)

    # ---- the pipeline around a step ----

    def _inputs_around(self, step: Declared) -> Mapping[str, Binding]:
        name = self.parent(step).name
        return self.inputs_of(name) if name else self._ports.inputs

    def _outputs_around(self, step: Declared) -> Mapping[str, Binding]:
        name = self.parent(step).name
        return self._outputs_of[name] if name else self._ports.outputs

    def _find_inner_writers(self) -> None:
        """Give each output of an inner pipeline the steps that write it, innermost first."""
        for name in reversed(self._outputs_of):
            if not self._steps[name].is_pipeline:
                continue
            for port, bound in self._outputs_of[name].items():
                step, output = self._writers.get((name, port), ("", ""))
                if not step and (name, port) in self._writers.values() and not self._broken:
                    problem = "no step of this pipeline writes this output"
                    self._values.wrong(problem, self._steps[name].source, "outputs", port)
                inner = self._outputs_of[step][output] if step else bound._replace(makers=())
                self._outputs_of[name][port] = bound._replace(
                    makers=inner.makers,
                    type=self._asked_types.get((name, port))
                    or self._declared_type(name, port)
                    or inner.type,
                )

    # ---- outputs of a step ----

    def _outputs(self, step: Declared) -> dict[str, Binding]:
        declared, given = step.declared_outputs, step.given_outputs
        self._values.refuse_undeclared(step, "outputs", given, declared)
        names = dict.fromkeys((*declared, *given))
        return {name: self._output(step, name)._replace(makers=(step.name,)) for name in names}

    def _declared_type(self, step: str, name: str) -> str | None:
        port = self._steps[step].given_outputs.get(name)
        form = port if isinstance(port, OutputForm) else None
        below = self._steps[step].declared_outputs.get(name)
        return as_type(form.type if form and form.type else below.type if below else None)

    def _output(self, step: Declared, name: str) -> Binding:
        port, below = step.given_outputs.get(name), step.declared_outputs.get(name)
        form = port if isinstance(port, OutputForm) else None
        declared = self._declared_type(step.name, name)
        kind = declared or "uri_folder"
        text = port if isinstance(port, str) else form.path if form else None
        way = ("outputs", name, *(("path",) if form else ()))
        given = self.given.outputs.get(f"{step.name}.{name}")
        if given is not None:
            return at_path(Path.cwd() / given, kind)
        if text is None:
            is_whole = name == ARTIFACTS and form is None and below is None and step.is_command
            own, folder = self.folder.step(step.name), self.folder.named_output(step.name, name)
            return at_own_path(own if is_whole else folder, kind)
        try:
            parts = parsed(text)
            one = only_reference(parts)
            if one is not None and one.scope == "outputs" and one.step is None:
                return self._of_pipeline(step, name, one)
            text = filled_in(parts, lambda one: self._of_place(step, one, name))
        except ExpressionError as error:
            self._values.wrong(error, step.source, *way)
            return unknown(declared)
        return self._values.path(text, kind, step.source, *way, made=True)

    def _of_pipeline(self, step: Declared, output: str, one: Reference) -> Binding:
        """Return the pipeline output that a step's output writes; refuse a second writer."""
        bound, around = named(one, self._outputs_around(step)), self.parent(step).name
        writer = self._writers.setdefault((around, one.name), (step.name, output))
        if writer != (step.name, output):
            other = ".".join(writer)
            msg = f"{one} is where {other!r} goes: give each output of a step a place of its own"
            raise ExpressionError(msg)
        own = self._declared_type(step.name, output)
        outer = bound.type
        if around:
            outer = self._asked_types.get((around, one.name)) or self._declared_type(
                around, one.name
            )
        is_other = own and outer and (own in FILE_TYPES) != (outer in FILE_TYPES)
        if not is_other or not (around or outer in FILE_TYPES):
            return bound._replace(type=own or bound.type or "uri_folder")
        if step.is_pipeline:  # its own steps are asked
            self._asked_types[step.name, output] = outer
        elif not _writes_rows_to(step, output):
            msg = f"{one} is a {outer}, and this output a {own}: give both one type"
            raise ExpressionError(msg)
        return bound._replace(type=outer)

    def _of_place(self, step: Declared, one: Reference, output: str) -> str | None:
        """Return the value of an expression in the place of an output."""
        word = self.parent(step).word(one, output, step.name)
        if word is not None:
            return word
        if one.scope == "inputs" and one.of_parent and one.step is None:
            bound = named(one, self.parent(step).inputs)
            if bound.is_foreign:
                msg = f"{one} is from a caller: the place of an output cannot depend on it"
                raise ExpressionError(msg)
            return None if bound.is_unknown else bound.text
        msg = f"{one}: the place of an output cannot depend on it"
        raise ExpressionError(msg)

    # ---- inputs of a step ----

    def _inputs(self, step: Declared) -> dict[str, Binding]:
        declared, given = step.declared_inputs, step.given_inputs
        self._values.refuse_undeclared(step, "inputs", given, declared)
        found = {}
        for name in dict.fromkeys((*declared, *given)):
            below = declared.get(name)
            found[name] = self._input(step, name, below)
            self._refuse_path(step, name, found[name])
            for form in (below, given.get(name)):
                if isinstance(form, InputForm):
                    self._values.fitting(form, found[name], step.source, "inputs", name)
        return found

    def _refuse_path(self, step: Declared, name: str, bound: Binding) -> None:
        """Refuse what another step writes where a number or a switch is declared."""
        reads = RETURNED_IS_READ in (getattr(step.form, "command", None) or "")
        if bound.is_path and bound.makers and bound.type in KINDS and not reads:
            problem = f"it has to be of type {bound.type}, and this is a path that a step writes"
            self._values.wrong(problem, step.source, "inputs", name)

    def _input(self, step: Declared, name: str, below: InputForm | None) -> Binding:
        port = step.given_inputs.get(name)
        form = port if isinstance(port, InputForm) else None
        declared, given = (one.type if one else None for one in (below, form))
        is_taken_as_folder = (declared, given) == ("uri_folder", "mltable")
        kind = as_type(declared if is_taken_as_folder else given or declared)
        text = form.place if form else port
        if text is None and form is not None and form.default is not None:
            return Binding(form.default, kind)
        if text is None:
            return self._default(step, name, below, kind)
        way = ("inputs", name, *((form.place_key,) if form else ()))
        bound = self._value(step, text, way) if isinstance(text, str) else Binding(text)
        bound = bound._replace(type=kind or bound.type)
        is_value = kind is not None and not takes_path(kind)  # dumps give values by `path`, too
        if bound.value is None or not (
            bound.is_path or takes_path(kind) or (form and not is_value)
        ):
            return bound
        if bound.is_foreign:
            self._values.wrong("a value of a caller is not a path", step.source, *way)
            return unknown(kind)
        if bound.is_path and (bound.makers or bound.is_unknown):
            return bound
        base = step.source.at(*way).base
        return self._made(step, bound, base) or self._there(step, bound, way)

    def _made(self, step: Declared, bound: Binding, base: Path) -> Binding | None:
        """Return a path with the steps whose outputs contain it; None if no step makes it."""
        try:
            place = self.given.assets.place(bound.text or "", base, self.folder.datastore)
        except UsageError:
            return None  # the caller reports it if no step makes the path
        found = at_path(place, bound.type)
        makers = [
            name
            for name, outputs in self.outputs_of.items()
            if any(one.contains(found) for one in outputs.values())
            and not name.startswith(f"{step.name}.")
        ]
        if not makers:
            return None
        others = dict.fromkeys([*bound.makers, *(one for one in makers if one != step.name)])
        is_old = not bound.makers and found.path.exists()
        may_be_old = is_old and not self.folder.is_named_in(found.path)
        return found._replace(makers=tuple(others), may_be_old=may_be_old)

    def _there(self, step: Declared, bound: Binding, way: tuple[str, ...]) -> Binding:
        """Return a path that no step makes, which must exist."""
        is_output = any(one.value == bound.value for one in self._outputs_around(step).values())
        if bound.is_path and (self._broken or not is_output):  # an input has been looked at
            return self._values.readable(bound, step.source, *way)
        path = self._values.path(str(bound.value), bound.type, step.source, *way)
        found = self._values.existing(path._replace(makers=bound.makers), step.source, *way)
        return self._values.readable(found, step.source, *way)

    def _take_what_is_there(self, name: str) -> None:
        """Drop circular waits for input paths that already exist.

        A step does not wait for a maker of such a path that itself waits for the step, or for a
        step in it.
        """
        for port, bound in self._inputs_of[name].items():
            if bound.may_be_old:
                own = {one for one in self.outputs_of if f"{one}.".startswith(f"{name}.")}
                makers = tuple(one for one in bound.makers if not own & self._all_before(one))
                self._inputs_of[name][port] = bound._replace(makers=makers)

    def _all_before(self, name: str) -> set[str]:
        """Return all steps that must end before a step, directly or indirectly."""
        found = list(self.needs(name))
        for one in found:  # the list grows during the loop
            needed = self.needs(one) if one in self._steps else ()
            found += [more for more in needed if more not in found]
        return {*found}

    def _default(
        self, step: Declared, name: str, below: InputForm | None, kind: str | None
    ) -> Binding:
        """Return the value of an input that the pipeline does not give."""
        if below is not None and below.default is not None:
            return Binding(below.default, kind)
        if below is not None and below.place is not None and step.component_source is not None:
            source, way = step.component_source, ("inputs", name)
            made = self._made(step, Binding(below.place, kind), source.at(*way).base)
            if made is not None:
                return made
            path = self._values.path(below.place, kind, source, *way)
            found = self._values.existing(path, source, *way)
            return self._values.readable(found, source, *way)
        if step.is_alone:
            return unknown(kind)
        if below is not None and not below.optional:
            self._values.wrong(f"the input {name!r} is missing", step.source, "inputs")
            return unknown(kind)
        return Binding(None, kind)

    def _value(self, step: Declared, text: str, way: tuple[str, ...]) -> Binding:
        """Return the value for the text of an input."""
        try:
            parts = parsed(text)
            one = only_reference(parts)
            if one is not None:
                return self._referred(step, one)
            found = {one: self._referred(step, one) for one in references(parts)}
            for one, bound in found.items():
                if bound.is_foreign:
                    msg = f"{one} is from a caller: it stands alone, not within another text"
                    raise ExpressionError(msg)
            makers = [maker for one in found.values() for maker in one.makers]
            text = filled_in(parts, lambda one: found[one].text)
            return Binding(text, makers=tuple(dict.fromkeys(makers)))
        except ExpressionError as error:
            self._values.wrong(error, step.source, *way)
            return unknown()

    def _referred(self, step: Declared, one: Reference) -> Binding:
        parent = self.parent(step)
        if one.scope in {"default_datastore", "name"}:
            return Binding(parent.word(one))
        if one.step is None:  # older files leave out `parent`
            if one.scope == "inputs":
                return named(one, self._inputs_around(step))
            if one.scope == "outputs":
                return named(one, self._outputs_around(step))
            msg = f"{one} stands for nothing in an input"
            raise ExpressionError(msg)
        whole = parent.step(one.step)
        if whole in self._broken:
            return unknown()._replace(makers=(whole,))
        if whole not in self._steps:
            siblings = [name for name, other in self._steps.items() if self.parent(other) is parent]
            hint = nearest_of(one.step, [name.rpartition(".")[2] for name in siblings])
            msg = f"{one}: the step {one.step!r} does not exist; {hint}"
            raise ExpressionError(msg)
        if one.scope == "inputs":
            return named(one, self.inputs_of(whole))
        bound = named(one, self._outputs_of[whole])
        if not bound.makers and not self._broken:
            msg = f"{one}: no step of the pipeline {one.step!r} writes this output"
            raise ExpressionError(msg)
        return bound


def _names(root: Path, word: bytes) -> bool:
    """Say whether a Python file in a folder of code has a word in it."""
    try:
        files = [root / name for name in source_files(root) if name.endswith(".py")]
        return any(word in file.read_bytes() for file in files)
    except (UsageError, OSError):  # reported where the code is checked
        return False


def _writes_rows_to(step: Declared, output: str) -> bool:
    """Say whether a step appends its rows to an output, which can be a file or a folder."""
    task = getattr(step.form, "task", None)
    texts = [getattr(one, "append_row_to", None) for one in (task, step.form)]
    return f"outputs.{output}" in {text.strip("${} ") for text in texts if isinstance(text, str)}
