"""`Node`: a step of a pipeline, with its inputs, its outputs and keys of its own."""

from __future__ import annotations

from contextvars import ContextVar
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from daskprs._suggest import nearest_of
from daskprs.azure._pipelines.component import FORMS
from daskprs.azure.v2.entities import (
    CommandJobLimits,
    JobResourceConfiguration,
    PipelineJobSettings,
    RetrySettings,
)
from daskprs.azure.v2.entity import Entity, Written, local_place, plain
from daskprs.azure.v2.ports import GivenInput, Output, Ports, StepOutput, as_output
from daskprs.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daskprs.azure.v2.component import Component

STEPS: ContextVar[list[Node] | None] = ContextVar("STEPS", default=None)
"""The steps of the pipeline whose function runs; None outside of such a function."""
PARTS: dict[str, type[Entity]] = {
    "resources": JobResourceConfiguration,
    "retry_settings": RetrySettings,
    "limits": CommandJobLimits,
    "settings": PipelineJobSettings,
}
"""The keys whose values are objects with keys of their own."""
OF_A_PIPELINE = ("settings", "compute", "display_name", "description", "tags", "properties")
PIPELINE = "pipeline"


def keys_of_kind(kind: str) -> list[str]:
    """Return the keys that a step of a kind may set."""
    if kind == PIPELINE:
        return [*OF_A_PIPELINE]
    left_out = {"type", "inputs", "outputs", "component", "schema_url", "name"}
    return [name for name in FORMS[kind].model_fields if name not in left_out]


class Node(Written):
    """A step: a component with inputs and outputs.

    Keys of the component, such as `max_concurrency_per_instance`, are attributes: a step may set
    them for itself. A step that is called is another step with other inputs.

    Attributes
    ----------
    name : str or None
        The name of the step; by default that of its variable in the pipeline's function.
    component : Component
        What the step does.
    inputs, outputs
        By name, as attributes and as items.

    """

    name: str | None
    component: Component
    inputs: Ports[GivenInput]
    outputs: Ports[StepOutput]

    def __init__(self, component: Component, inputs: Mapping[str, Any]) -> None:
        where = f"the component {component.name or component.kind!r}"
        made = {
            name: StepOutput.of(self, name, declared)
            for name, declared in component.outputs.items()
        }

        def new_output(name: str, value: Output) -> StepOutput:
            self.outputs[name].take(as_output(name, value))
            return self.outputs[name]

        vars(self).update(
            name=None,
            component=component,
            inputs=bound_inputs(where, component, inputs),
            outputs=Ports(f"{where}, outputs:", made, new_output),
            _keys={},
        )

    def entered(self) -> Node:
        """Return this step, which is now one of the pipeline whose function runs, if one does."""
        steps = STEPS.get()
        if steps is not None:
            steps.append(self)
        return self

    def __call__(self, **inputs: Any) -> Node:
        """Return another step with the same keys, and with other inputs."""
        held = {name: one for name, one in self.inputs.items() if one.is_given}
        step = Node(self.component, {**held, **inputs})
        vars(step)["_keys"] = deepcopy(vars(self)["_keys"])
        for name, output in self.outputs.items():
            step.outputs[name].take(output)
        return step.entered()

    def __getattr__(self, name: str) -> Any:
        """Return a key of the step, or of its component."""
        if name.startswith("_"):
            raise AttributeError(name)
        self._refuse_unknown(name)
        keys = vars(self)["_keys"]
        if name not in keys and name in PARTS:
            known = PARTS[name].keys()
            below = plain(self.component.content.get(name)) or {}
            keys[name] = PARTS[name](**{key: below[key] for key in below if key in known})
        elif name not in keys:
            below = self._below(name)
            if not isinstance(below, dict | list | Entity):
                return below
            keys[name] = below
        return keys[name]

    def _below(self, name: str) -> Any:
        """Return a copy of a key of the component, whose changes are those of this step."""
        below = deepcopy(self.component.content.get(name))
        if isinstance(below, dict) and isinstance(below.get("code"), str):
            below["code"] = local_place(below["code"], self.component.folder)
        return below

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a key of the step."""
        if name == "name":
            vars(self)["name"] = value
            return
        self._refuse_unknown(name)
        part = PARTS.get(name)
        vars(self)["_keys"][name] = value if part is None else part.from_mapping(name, value)

    def _refuse_unknown(self, name: str) -> None:
        kind = self.component.kind
        known = keys_of_kind(kind)
        if name not in known:
            hint = nearest_of(name, ["name", "inputs", "outputs", *known])
            msg = f"a step of type {kind!r} has no attribute {name!r}; {hint}"
            raise AttributeError(msg)

    def set_resources(self, **given: Any) -> None:
        """Set keys of `resources`."""
        for name, value in given.items():
            setattr(self.resources, name, value)

    def set_limits(self, *, timeout: int) -> None:
        """Set the seconds after which the command is killed."""
        self.limits.timeout = timeout

    def only_output(self) -> StepOutput:
        """Return the output of a step that has only one."""
        if len(self.outputs) != 1:
            msg = (
                f"the step of {self.component.name!r} has {len(self.outputs)} outputs: name the "
                "one that is meant, as step.outputs.NAME."
            )
            raise OptionError(msg)
        return next(iter(self.outputs.values()))

    def values(self, promoted: Mapping[int, str] | None = None) -> dict[str, Any]:
        """Return the step as plain values.

        `promoted` has the names of the pipeline's outputs, by the identity of a step's output.
        """
        keys = {
            name: plain(value)
            for name, value in vars(self)["_keys"].items()
            if name in PARTS or plain(value) != plain(self._below(name))
        }
        found: dict[str, Any] = {
            "type": self.component.kind,
            "component": self.component.reference(),
            **{name: value for name, value in keys.items() if value not in (None, {})},
        }
        for name, port in self.inputs.items():
            self._refuse_value(name, port.value)
        given = {name: one.written() for name, one in self.inputs.items()}
        found["inputs"] = {name: value for name, value in given.items() if value is not None}
        outputs: dict[str, Any] = {name: one.values() for name, one in self.outputs.items()}
        for name, one in self.outputs.items():
            if id(one) in (promoted or {}):
                outputs[name] = f"${{{{parent.outputs.{(promoted or {})[id(one)]}}}}}"
        found["outputs"] = {name: value for name, value in outputs.items() if value}
        return {key: value for key, value in found.items() if value != {}}

    def _refuse_value(self, name: str, given: Any) -> None:
        """Refuse what a function returned, where only a path to it would arrive."""
        if not isinstance(given, StepOutput) or given.step is None or self.component.takes_values:
            return
        if given.step.component.returns_value(given.port_name):
            msg = (
                f"{self.component.title}: {name}: only a command_component takes what a function "
                "returned. Write the value into an Output(type='uri_file') of the function."
            )
            raise OptionError(msg)

    def __repr__(self) -> str:
        return f"<{self.component.kind} step {self.name!r}>"


def bound_inputs(where: str, component: Component, inputs: Mapping[str, Any]) -> Ports[GivenInput]:
    """Return the inputs of a component with the given values; refuse unknown ones."""

    def new_input(name: str, value: Any) -> GivenInput:
        return bound(value, component.inputs[name], f"{where}: {name}")

    for name in inputs:
        if name not in component.inputs:
            msg = f"{where} has no input {name!r}; {nearest_of(name, [*component.inputs])}"
            raise OptionError(msg)
    given = {name: new_input(name, inputs.get(name)) for name in component.inputs}
    return Ports(f"{where}, inputs:", given, new_input)


def bound(given: Any, declared: Mapping[str, Any], owner: str) -> GivenInput:
    """Return a value as an input; a step stands for its only output."""
    value = given.only_output() if isinstance(given, Node) else given
    return GivenInput.of(value, declared, owner)
