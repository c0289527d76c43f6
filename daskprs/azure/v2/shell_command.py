"""`command`: a step that runs a shell command."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs._suggest import nearest_of
from daskprs.azure.v2.component import LABELS, Component
from daskprs.azure.v2.entity import Entity, local_place, plain
from daskprs.azure.v2.node import Node
from daskprs.azure.v2.ports import TYPES, Input, Output, as_output

if TYPE_CHECKING:
    import os

    from daskprs.azure.v2.entities import Environment, JobService


def command(
    *,
    command: str,
    name: str | None = None,
    version: str | None = None,
    display_name: str | None = None,
    description: str | None = None,
    tags: Mapping[str, Any] | None = None,
    properties: Mapping[str, Any] | None = None,
    experiment_name: str | None = None,
    environment: str | Environment | None = None,
    environment_variables: Mapping[str, str] | None = None,
    distribution: Any = None,
    compute: str | None = None,
    inputs: Mapping[str, Any] | None = None,
    outputs: Mapping[str, Any] | None = None,
    instance_count: int | None = None,
    instance_type: str | None = None,
    locations: list[str] | None = None,
    docker_args: Any = None,
    shm_size: str | None = None,
    timeout: int | None = None,
    code: str | os.PathLike[str] | None = None,
    identity: Any = None,
    is_deterministic: bool = True,
    services: Mapping[str, JobService] | None = None,
    job_tier: str | None = None,
    priority: str | None = None,
) -> Node:
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
    content = given(
        **dict(zip(LABELS, (name, version, display_name, description, tags), strict=True)),
        command=command,
        code=None if code is None else local_place(code, Path.cwd()),
        environment=environment,
        distribution=distribution,
        resources=given(
            instance_count=instance_count,
            instance_type=instance_type,
            locations=locations,
            docker_args=docker_args,
            shm_size=shm_size,
        ),
        is_deterministic=None if is_deterministic else False,
    )
    keys = given(
        environment_variables=environment_variables,
        compute=compute,
        identity=identity,
        services=services,
        properties=properties,
        experiment_name=experiment_name,
        job_tier=job_tier,
        priority=priority,
        limits=None if timeout is None else {"timeout": timeout},
    )
    return inline_step("command", content, inputs, outputs, keys)


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

    def __init__(
        self,
        *,
        name: str | None = None,
        version: str | None = None,
        description: str | None = None,
        tags: Mapping[str, Any] | None = None,
        display_name: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Any] | None = None,
        is_deterministic: bool = True,
        **keys: Any,
    ) -> None:
        known = ("command", "code", "environment", "distribution", "instance_count")
        for key in keys:
            if key not in known:
                msg = f"CommandComponent() has no argument {key!r}; {nearest_of(key, known)}"
                raise TypeError(msg)
        values = (name, version, display_name, description, tags)
        labels: dict[str, Any] = dict(zip(LABELS, values, strict=True))
        step = command(
            **keys, **labels, inputs=inputs, outputs=outputs, is_deterministic=is_deterministic
        )
        super().__init__("command", step.component.content)


def inline_step(
    kind: str,
    content: Mapping[str, Any],
    inputs: Mapping[str, Any] | None,
    outputs: Mapping[str, Any] | None,
    keys: Mapping[str, Any],
) -> Node:
    """Return a step whose component is written here; values among its inputs are given to it."""
    inputs = {name: _as_port(Input, value) for name, value in (inputs or {}).items()}
    declared = {name: _declaration(value) for name, value in inputs.items()}
    made = {
        name: as_output(name, _as_port(Output, value or Output()))
        for name, value in (outputs or {}).items()
    }
    ports = {
        "inputs": declared,
        "outputs": {name: {"type": one.type} for name, one in made.items()},
    }
    values = {name: value for name, value in inputs.items() if _is_value(value)}
    step = Node(Component(kind, {**content, **ports}), values)
    for name, one in made.items():
        step.outputs[name].take(one)
    for key, value in keys.items():
        setattr(step, key, value)
    return step


def given(**values: Any) -> dict[str, Any]:
    """Return the values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def _as_port(kind: type[Entity], one: Any) -> Any:
    """Return a mapping as the object that it stands for."""
    return kind(**one) if isinstance(one, Mapping) else one


def _is_value(one: Any) -> bool:
    """Say whether an input has a value, and is not only declared."""
    return not isinstance(one, Input) or one.path is not None


def _declaration(one: Any) -> dict[str, Any]:
    """Return how a component declares an input."""
    if isinstance(one, Input):
        return {key: value for key, value in one.values().items() if key not in ("path", "mode")}
    return {"type": TYPES.get(type(plain(one)), "string")}
