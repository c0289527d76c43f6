"""The places of the outputs of steps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from daskprs.azure.expressions import (
    ExpressionError,
    Reference,
    filled_in,
    named,
    only_reference,
    parsed,
)
from daskprs.azure.pipelines.bound import Binding, as_type, unknown
from daskprs.azure.pipelines.forms.port import OutputForm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daskprs.azure.pipelines.component import Declared
    from daskprs.azure.pipelines.ports import PipelinePorts
    from daskprs.azure.pipelines.values import Values
    from daskprs.folders.pipeline_folder import PipelineFolder

ARTIFACTS = "artifacts"
"""Azure's name for the output that holds everything that a command leaves."""


class StepOutputs:
    """Assigns places to the outputs of steps.

    Parameters
    ----------
    ports
        The inputs and outputs of the pipeline.
    values
        Creates values, and collects mistakes.
    folder
        The folder of the run, for outputs without a place of their own.
    given
        The caller's places, by ``step.name``.

    """

    def __init__(
        self,
        ports: PipelinePorts,
        values: Values,
        folder: PipelineFolder,
        given: Mapping[str, str],
    ) -> None:
        self._ports = ports
        self._values = values
        self._folder = folder
        self._given = given
        self._writers: dict[str, str] = {}
        """The ``step.output`` that writes each output of the pipeline."""

    def of(self, step: Declared) -> dict[str, Binding]:
        """Return the outputs of a step, by name."""
        declared = step.declared_outputs
        if step.component is not None:
            self._values.refuse_undeclared(step, "outputs", step.given_outputs, list(declared))
        names = [*declared, *(name for name in step.given_outputs if name not in declared)]
        return {name: self._one(step, name)._replace(makers=(step.name,)) for name in names}

    def word(self, step: Declared, one: Reference, output: str = "") -> str | None:
        """Return the value of a one-word expression in a step; None for any other expression."""
        words = {
            "name": f"{self._folder.path.name}.{step.name}",
            "output_name": output,
            "default_datastore": self._ports.store,
        }
        return words.get(one.scope)

    def _one(self, step: Declared, name: str) -> Binding:
        port, below = step.given_outputs.get(name), step.declared_outputs.get(name)
        form = port if isinstance(port, OutputForm) else None
        kind = as_type(form.type if form and form.type else below.type if below else None)
        text = port if isinstance(port, str) else form.path if form else None
        way = ("outputs", name, *(("path",) if form else ()))
        given = self._given.get(f"{step.name}.{name}")
        if given is not None:
            return Binding(str(Path.cwd() / given), kind or "uri_folder", is_path=True)
        if text is None:
            is_whole = name == ARTIFACTS and form is None and below is None and step.is_command
            place = self._folder.named_output(step.name, name)
            place = self._folder.step(step.name) if is_whole else place
            return Binding(str(place), kind or "uri_folder", is_path=True)
        try:
            parts = parsed(text)
            one = only_reference(parts)
            if one is not None and one.scope == "outputs" and one.step is None:
                bound = self._of_pipeline(f"{step.name}.{name}", one)
                return bound._replace(type=kind or bound.type or "uri_folder")
            text = filled_in(parts, lambda one: self._of_place(step, one, name))
        except ExpressionError as error:
            self._values.wrong(error, step.source, *way)
            return unknown(kind)
        return self._values.path(text, kind or "uri_folder", step.source, *way, made=True)

    def _of_pipeline(self, output: str, one: Reference) -> Binding:
        """Return the pipeline output that a step's output writes; refuse a second writer."""
        bound = named(one, self._ports.outputs)
        writer = self._writers.setdefault(one.name, output)
        if writer != output:
            msg = f"{one} is where {writer!r} goes: give each output of a step a place of its own"
            raise ExpressionError(msg)
        return bound

    def _of_place(self, step: Declared, one: Reference, output: str) -> str | None:
        word = self.word(step, one, output)
        if word is not None:
            return word
        if one.scope == "inputs" and one.of_parent and one.step is None:
            return named(one, self._ports.inputs).text
        msg = f"{one}: the place of an output cannot depend on it"
        raise ExpressionError(msg)
