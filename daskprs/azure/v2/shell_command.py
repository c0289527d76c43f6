"""`command`: a step that runs a shell command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from daskprs.azure._pipelines.forms import ResourcesForm
from daskprs.azure.v2.component import LABELS, Component
from daskprs.azure.v2.entity import local_place, plain, with_keys
from daskprs.azure.v2.node import Node, keys_of_kind
from daskprs.azure.v2.ports import TYPES, Input, Output, as_output

RESOURCES = [key for key in ResourcesForm.model_fields if key != "properties"]
"""The keys of a step's resources, which are arguments as they are."""
OF_A_STEP = {
    *("environment_variables", "compute", "identity", "services", "properties"),
    *("experiment_name", "job_tier", "priority", "limits"),
}
"""Keys that a step has, and its component does not."""
OF_A_COMPONENT = (
    *LABELS,
    *("command", "code", "inputs", "outputs", "environment", "distribution"),
    *("is_deterministic", "instance_count"),
)


def step_keys(kind: str) -> list[str]:
    """Return the arguments of a function that makes a step: keys of its form and its resources."""
    return ["name", "inputs", "outputs", *keys_of_kind(kind), *RESOURCES]


@with_keys(*step_keys("command"), "timeout")
def command(**keys: Any) -> Node:
    """Return a step that runs a shell command; call it in a pipeline with other inputs.

    Parameters
    ----------
    command
        The command, with expressions such as ``${{inputs.data}}``.
    inputs
        By name: what the step takes (an `Input` without a path), or its values.
    outputs
        By name: an `Output`, or None for a folder.
    code
        The folder of the script.
    environment_variables
        Set for the command.
    timeout
        Seconds, then the command is killed.
    is_deterministic
        Whether an earlier result of the same step is reused.
    name, version, display_name, description, tags, properties, experiment_name
        Labels.
    distribution
        The command finds the variables of a world of one process.
    environment, compute, identity, services, job_tier, priority, instance_count, instance_type,
    locations, docker_args, shm_size
        Without effect: the command runs once, on this machine.

    """
    if "timeout" in keys:
        keys["limits"] = {"timeout": keys.pop("timeout")}
    if "code" in keys:
        keys["code"] = local_place(keys["code"], Path.cwd())
    return inline_step("command", keys)


class CommandComponent(Component):
    """A component that runs a shell command, written in Python.

    Parameters
    ----------
    command, code, inputs, outputs, is_deterministic, distribution, name, version, display_name,
    description, tags
        As those of `command`.
    environment, instance_count
        Without effect.

    """

    @with_keys(*OF_A_COMPONENT)
    def __init__(self, **keys: Any) -> None:
        super().__init__("command", command(**keys).component.content)


def inline_step(kind: str, keys: dict[str, Any]) -> Node:
    """Return a step whose component is written here; values among its inputs are given to it."""
    inputs = {name: Input.from_mapping(name, one) for name, one in keys.pop("inputs", {}).items()}
    made = {
        name: as_output(name, Output.from_mapping(name, one or Output()))
        for name, one in keys.pop("outputs", {}).items()
    }
    content = {key: one for key, one in keys.items() if key not in {*OF_A_STEP, *RESOURCES}}
    resources = {key: one for key, one in keys.items() if key in RESOURCES}
    ports = {
        "resources": {**plain(keys.get("resources", {})), **resources},
        "inputs": {name: _declaration(one) for name, one in inputs.items()},
        "outputs": {name: {"type": one.type} for name, one in made.items()},
    }
    values = {name: value for name, value in inputs.items() if _is_value(value)}
    step = Node(Component(kind, {**content, **ports}), values)
    for name, one in made.items():
        step.outputs[name].take(one)
    for key, one in keys.items():
        if key in OF_A_STEP:
            setattr(step, key, one)
    return step


def _is_value(one: Any) -> bool:
    """Say whether an input has a value, and is not only declared."""
    return not isinstance(one, Input) or one.path is not None


def _declaration(one: Any) -> dict[str, Any]:
    """Return how a component declares an input."""
    if isinstance(one, Input):
        return {key: value for key, value in one.values().items() if key not in ("path", "mode")}
    return {"type": TYPES.get(type(plain(one)), "string")}
