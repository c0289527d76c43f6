"""`parallel_run_function`: a step that runs an entry script over mini-batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from daskprs.azure._pipelines.forms import TaskForm
from daskprs.azure.v2.entity import Entity, with_keys
from daskprs.azure.v2.shell_command import inline_step, step_keys
from daskprs.errors import OptionError

if TYPE_CHECKING:
    from daskprs.azure.v2.node import Node


class RunFunction(Entity, form=TaskForm):
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
    LEFT_OUT: ClassVar[frozenset[str]] = frozenset({"args"})

    type: str = "run_function"

    def __post_init__(self) -> None:
        """Refuse a task of another type."""
        super().__post_init__()
        if self.type != "run_function":
            msg = f"task: the type of a task is 'run_function', not {self.type!r}."
            raise OptionError(msg)


@with_keys(*step_keys("parallel"))
def parallel_run_function(**keys: Any) -> Node:
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
    if keys.get("task") is not None:
        keys["task"] = RunFunction.from_mapping("task", keys["task"])
    return inline_step("parallel", keys)
