"""`parallel_run_function`: a step that runs an entry script over mini-batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from daskprs._suggest import nearest_of
from daskprs.azure.v2.component import LABELS
from daskprs.azure.v2.entity import Entity
from daskprs.azure.v2.shell_command import given, inline_step
from daskprs.errors import OptionError

if TYPE_CHECKING:
    import os

    from daskprs.azure.v2.entities import Environment, RetrySettings
    from daskprs.azure.v2.node import Node


@dataclass(kw_only=True)
class RunFunction(Entity):
    """The entry script of a parallel step.

    Parameters
    ----------
    code : path
        The folder of the script.
    entry_script : str
        The script in it, with `run(mini_batch)`.
    program_arguments : str, optional
        Arguments of the script; system flags among them set options of the job.
    append_row_to : str, optional
        The output for the returned rows: ``"${{outputs.<name>}}"``. Without it there is none.
    environment, model
        Without effect.

    """

    PLACES: ClassVar[frozenset[str]] = frozenset({"code"})

    code: str | os.PathLike[str] | None = None
    entry_script: str | None = None
    program_arguments: str | None = None
    model: Any = None
    append_row_to: str | None = None
    environment: str | Environment | None = None

    def values(self) -> dict[str, Any]:
        """Return the task as plain values."""
        return {"type": "run_function", **super().values()}


def parallel_run_function(
    *,
    name: str | None = None,
    version: str | None = None,
    description: str | None = None,
    tags: Mapping[str, Any] | None = None,
    properties: Mapping[str, Any] | None = None,
    display_name: str | None = None,
    experiment_name: str | None = None,
    compute: str | None = None,
    retry_settings: RetrySettings | Mapping[str, Any] | None = None,
    environment_variables: Mapping[str, str] | None = None,
    logging_level: str | None = None,
    max_concurrency_per_instance: int | None = None,
    error_threshold: int | None = None,
    mini_batch_error_threshold: int | None = None,
    task: RunFunction | Mapping[str, Any] | None = None,
    mini_batch_size: str | int | None = None,
    partition_keys: list[str] | str | None = None,
    input_data: str | None = None,
    inputs: Mapping[str, Any] | None = None,
    outputs: Mapping[str, Any] | None = None,
    instance_count: int | None = None,
    instance_type: str | None = None,
    docker_args: Any = None,
    shm_size: str | None = None,
    identity: Any = None,
    is_deterministic: bool = True,
) -> Node:
    """Return a step that runs an entry script over mini-batches; call it in a pipeline.

    Parameters
    ----------
    inputs
        By name: what the step takes (an `Input` without a path), or its values.
    outputs
        By name: an `Output`, or None for a folder.
    input_data
        The input that is cut into mini-batches: ``"${{inputs.<name>}}"``.
    mini_batch_size
        Files, or a size of rows such as ``"10kb"``.
    partition_keys
        The keys whose rows or files come together.
    task
        The script.
    retry_settings
        `max_retries` and `timeout` of a mini-batch.
    max_concurrency_per_instance
        Agent processes on each node.
    instance_count
        Nodes; -1: all.
    error_threshold, mini_batch_error_threshold
        Items and mini-batches that may fail; -1: any number.
    environment_variables
        Set in the agents.
    logging_level
        ``"DEBUG"``, ``"INFO"``, ``"WARNING"`` or ``"ERROR"``.
    is_deterministic
        Whether an earlier result of the same step is reused.
    name, version, display_name, description, tags, properties, experiment_name
        Labels.
    compute, identity, instance_type, docker_args, shm_size
        Without effect.

    """
    content = given(
        **dict(zip(LABELS, (name, version, display_name, description, tags), strict=True)),
        task=_task_of(task) if isinstance(task, Mapping) else task,
        input_data=input_data,
        mini_batch_size=None if mini_batch_size is None else str(mini_batch_size),
        partition_keys=partition_keys,
        max_concurrency_per_instance=max_concurrency_per_instance,
        error_threshold=error_threshold,
        mini_batch_error_threshold=mini_batch_error_threshold,
        logging_level=logging_level,
        retry_settings=retry_settings,
        resources=given(
            instance_count=instance_count,
            instance_type=instance_type,
            docker_args=docker_args,
            shm_size=shm_size,
        ),
        is_deterministic=None if is_deterministic else False,
    )
    keys = given(
        environment_variables=environment_variables,
        compute=compute,
        identity=identity,
        properties=properties,
        experiment_name=experiment_name,
    )
    return inline_step("parallel", content, inputs, outputs, keys)


def _task_of(values: Mapping[str, Any]) -> RunFunction:
    """Return a mapping as a task; refuse what has no meaning."""
    known = RunFunction.keys()
    kind = values.get("type", "run_function")
    if kind != "run_function":
        msg = f"task: the type of a task is 'run_function', not {kind!r}."
        raise OptionError(msg)
    for key in values:
        if key not in known and key != "type":
            msg = f"task: an unknown key {key!r}; {nearest_of(key, known)}"
            raise OptionError(msg)
    return RunFunction(**{key: value for key, value in values.items() if key != "type"})
