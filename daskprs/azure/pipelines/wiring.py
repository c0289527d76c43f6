"""The wiring of a pipeline's steps: the value of each input and output in a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs.azure.expressions import (
    ExpressionError,
    Reference,
    filled_in,
    named,
    only_reference,
    parsed,
    references,
)
from daskprs.azure.pipelines.bound import Binding, as_type, takes_path, unknown
from daskprs.azure.pipelines.forms.port import InputForm
from daskprs.azure.pipelines.step_outputs import StepOutputs
from daskprs.errors import UsageError
from daskprs.yaml_files.mistakes import nearest_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from daskprs.azure.assets import Assets
    from daskprs.azure.pipelines.component import Declared
    from daskprs.azure.pipelines.ports import PipelinePorts
    from daskprs.azure.pipelines.values import Values
    from daskprs.folders.pipeline_folder import PipelineFolder


def makers_of(place: Path, outputs: Mapping[str, Mapping[str, Binding]]) -> list[str]:
    """Return the steps whose outputs contain a path."""
    return [
        step
        for step, made in outputs.items()
        if any(place.is_relative_to(one.path) for one in made.values())
    ]


def is_shared(
    step: str, inputs: Iterable[Binding], outputs: Mapping[str, Mapping[str, Binding]]
) -> bool:
    """Say whether a step's outputs overlap its inputs or other steps' outputs."""
    others = [one for name, made in outputs.items() if name != step for one in made.values()]
    others += [one for one in inputs if one.is_path]
    return any(
        one.path.is_relative_to(own.path) or own.path.is_relative_to(one.path)
        for one in others
        for own in outputs[step].values()
    )


class Wiring:
    """Gives values to the inputs and outputs of the steps of a pipeline.

    Parameters
    ----------
    ports
        The inputs and outputs of the pipeline.
    values
        Creates values, and collects mistakes.
    steps
        The steps by name.
    folder
        The folder of the run, for outputs without a place of their own.
    outputs
        The caller's places for outputs, by name and by ``step.name``.
    assets
        The known local paths of assets and datastores.
    broken
        Steps that could not be read because of mistakes.

    """

    def __init__(
        self,
        ports: PipelinePorts,
        values: Values,
        steps: Mapping[str, Declared],
        folder: PipelineFolder,
        outputs: Mapping[str, str],
        assets: Assets,
        broken: Collection[str] = (),
    ) -> None:
        self.assets = assets
        self._broken = broken
        self._ports = ports
        self._values = values
        self._steps = steps
        self.folder = folder
        self._outputs = StepOutputs(ports, values, folder, outputs)
        self.outputs_of = {name: self._outputs.of(step) for name, step in steps.items()}
        known = [f"{name}.{one}" for name, found in self.outputs_of.items() for one in found]
        ports.refuse_unknown("--output", outputs, [*ports.outputs, *known])
        self._inputs_of: dict[str, dict[str, Binding]] = {}
        self._asked: set[str] = set()
        for name in steps:
            self.inputs_of(name)
        for name in steps:
            self._take_what_is_there(name)

    def inputs_of(self, name: str) -> dict[str, Binding]:
        """Return the inputs of a step.

        Raises
        ------
        ExpressionError
            When an input depends on itself.

        """
        if name not in self._inputs_of:
            if name in self._asked:
                msg = f"the inputs of the step {name!r} depend on themselves"
                raise ExpressionError(msg)
            self._asked.add(name)
            self._inputs_of[name] = self._inputs(self._steps[name])
        return self._inputs_of[name]

    def needs(self, name: str) -> set[str]:
        """Return the steps that must end before this step."""
        return {maker for one in self.inputs_of(name).values() for maker in one.makers}

    def shares(self, name: str) -> bool:
        """Say whether a step's outputs overlap its inputs or other steps' outputs."""
        return is_shared(name, self.inputs_of(name).values(), self.outputs_of)

    def is_there(self, name: str) -> bool:
        """Say whether all input paths of a step exist; mistakes report those that do not."""
        paths = [one for one in self.inputs_of(name).values() if one.is_path]
        return all(one.value and one.path.exists() for one in paths)

    def resolved(self, step: Declared, one: Reference) -> str | None:
        """Return the value of an expression in a step; None for an input that was not given.

        Raises
        ------
        ExpressionError
            When the expression names nothing that exists.

        """
        word = self._outputs.word(step, one)
        if word is not None:
            return word
        match one:
            case Reference("inputs", of_parent=False):
                found = self.inputs_of(step.name)
                if one.name in self._ports.inputs.keys() - found.keys():
                    right = one._replace(of_parent=True)
                    msg = f"{one} is no input of the step, but one of the pipeline: write {right}"
                    raise ExpressionError(msg)
                return named(one, found).text
            case Reference("outputs", of_parent=False):
                return named(one, self.outputs_of[step.name]).text
            case Reference("inputs", step=None):
                return named(one, self._ports.inputs).text
        msg = f"{one}: bind it to an input or an output of the step, and name that one here"
        raise ExpressionError(msg)

    # ---- inputs of a step ----

    def _inputs(self, step: Declared) -> dict[str, Binding]:
        declared = step.declared_inputs
        if step.component is not None:
            self._values.refuse_undeclared(step, "inputs", step.given_inputs, list(declared))
        found = {}
        for name in (*declared, *(one for one in step.given_inputs if one not in declared)):
            below = declared.get(name)
            bound = self._input(step, name, below)
            if below is not None:
                bound = self._values.fitting(below, bound, step.source, "inputs", name)
            found[name] = bound
        return found

    def _input(self, step: Declared, name: str, below: InputForm | None) -> Binding:
        port = step.given_inputs.get(name)
        form = port if isinstance(port, InputForm) else None
        kind = as_type(form.type if form and form.type else below.type if below else None)
        text = form.place if form else port
        if text is None and form is not None and form.default is not None:
            return Binding(form.default, kind)
        if text is None:
            return self._default(step, name, below, kind)
        way = ("inputs", name, *(("path",) if form else ()))
        bound = self._value(step, text, way) if isinstance(text, str) else Binding(text)
        bound = bound._replace(type=kind or bound.type)
        if bound.value is None or not (bound.is_path or takes_path(kind) or form):
            return bound
        if bound.is_path and (bound.makers or bound.is_unknown):
            return bound
        return self._made(step, bound) or self._there(step, bound, way)

    def _made(self, step: Declared, bound: Binding) -> Binding | None:
        """Return a path with the steps whose outputs contain it; None if no step makes it."""
        try:
            place = self.assets.place(bound.text or "", step.source.base, self.folder.datastore)
        except UsageError:
            return None  # `_there` reports it if no step makes the path
        place = place.absolute()
        makers = makers_of(place, self.outputs_of)
        if not makers:
            return None
        others = dict.fromkeys([*bound.makers, *(one for one in makers if one != step.name)])
        return Binding(
            str(place),
            bound.type,
            is_path=True,
            makers=tuple(others),
            may_be_old=not bound.makers and place.exists() and not self.folder.is_named_in(place),
        )

    def _there(self, step: Declared, bound: Binding, way: tuple[str, ...]) -> Binding:
        """Return a path that no step makes, which must exist."""
        is_output = any(one.value == bound.value for one in self._ports.outputs.values())
        if bound.is_path and (self._broken or not is_output):  # an input has been looked at
            return bound
        path = self._values.path(str(bound.value), bound.type, step.source, *way)
        return self._values.existing(path._replace(makers=bound.makers), step.source, *way)

    def _take_what_is_there(self, name: str) -> None:
        """Drop circular waits for input paths that already exist.

        A step does not wait for a maker of such a path that itself waits for the step.
        """
        for port, bound in self._inputs_of[name].items():
            if bound.may_be_old:
                makers = tuple(one for one in bound.makers if name not in self._all_before(one))
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
            return self._values.existing(
                self._values.path(below.place, kind, source, *way), source, *way
            )
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
                return self._referred(one)
            makers = [maker for one in references(parts) for maker in self._referred(one).makers]
            text = filled_in(parts, lambda one: self._referred(one).text)
            return Binding(text, makers=tuple(dict.fromkeys(makers)))
        except ExpressionError as error:
            self._values.wrong(error, step.source, *way)
            return unknown()

    def _referred(self, one: Reference) -> Binding:
        if one.scope == "default_datastore":
            return Binding(self._ports.store)
        if one.scope == "name":
            return Binding(self.folder.path.name)
        if one.step is None:  # older files leave out `parent`
            known = {"inputs": self._ports.inputs, "outputs": self._ports.outputs}.get(one.scope)
            if known is None:
                msg = f"{one} stands for nothing in an input"
                raise ExpressionError(msg)
            return named(one, known)
        if one.step in self._broken:
            return unknown()._replace(makers=(one.step,))
        if one.step not in self._steps:
            msg = f"{one}: there is no step {one.step!r}; {nearest_of(one.step, [*self._steps])}"
            raise ExpressionError(msg)
        if one.scope == "outputs":
            return named(one, self.outputs_of[one.step])
        return named(one, self.inputs_of(one.step))
