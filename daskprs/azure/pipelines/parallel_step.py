"""A parallel step as a task: its keys, flags and values in the words of `daskprs.parallel_run`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from daskprs.agent.node.environment import ASSETS
from daskprs.azure.expressions import ExpressionError, only_reference, parsed, words
from daskprs.azure.pipelines.forms import ALL, ResourcesForm, RetryForm, TaskForm
from daskprs.azure.pipelines.values import Binding, takes_path
from daskprs.azure.system_flags import Flags, split_flags
from daskprs.azure.task import Task
from daskprs.suggest import nearest_of
from daskprs.yaml_files.mistakes import Mistake

if TYPE_CHECKING:
    from collections.abc import Callable

    from daskprs.azure.expressions import Reference
    from daskprs.azure.pipelines.component import Declared
    from daskprs.azure.pipelines.forms import ParallelForm
    from daskprs.azure.pipelines.wiring import Wiring
    from daskprs.yaml_files.mistakes import Mistake

TRIES, RUN_SECONDS, NODES, FILES = 3, 60, 1, 1
"""Defaults of a parallel job."""
TABLES = ("mltable",)
T = TypeVar("T")


class _Wrong(ValueError):  # noqa: N818 - it says what it is
    """Something is wrong with a key."""

    def __init__(self, problem: object, *way: str) -> None:
        super().__init__(str(problem))
        self.way = way


class ParallelStep:
    """Builds the task of a step; `task` is None when the step has mistakes."""

    def __init__(self, step: Declared, form: ParallelForm, wiring: Wiring) -> None:
        self.mistakes: list[Mistake] = []
        self.flags = Flags({}, {}, [], [])
        self.task: Task | None = None
        self._step = step
        self._form = form
        self._task_keys = form.task or TaskForm()
        self._wiring = wiring
        self._inputs = wiring.inputs_of(step.name)
        self._outputs = wiring.outputs_of[step.name]
        data, output = self._unless_wrong(self._data), self._unless_wrong(self._append_row_to)
        script = self._unless_wrong(self._script)
        self._find_flags()
        if not self.mistakes and data is not None and script is not None:
            self.task = self._task(data, output, script)

    def _task(self, data: Binding, output: Binding | None, script: TaskForm) -> Task:
        return Task(
            name=self._step.name,
            data=str(data.value),
            script=str(script.entry_script),
            source_directory=self._step.code or self._step.source.base,
            options={**self._options(data), **self._of_output(output)},
            job_dir=self._wiring.folder.step(self._step.name),
            output_dir=self._output_dir(output),
        )

    # ---- what is wanted ----

    def _data(self) -> Binding | None:
        """Return the input that is cut into mini-batches."""
        text, known = self._form.input_data, [*self._inputs]
        if text is None and self._step.wrong:
            return None  # the key may be one of those
        if text is None:
            raise _Wrong("it is missing: it names an input, ${{inputs.<name>}}", "input_data")
        one = self._reference(text, "input_data")
        if one.scope != "inputs" or one.of_parent or one.name not in self._inputs:
            problem = f"{one} is not an input of this step; {nearest_of(one.name, known)}"
            raise _Wrong(problem, "input_data")
        bound = self._inputs[one.name]
        if bound.is_file or not takes_path(bound.type or "uri_folder"):
            problem = f"{one} is a {bound.type}: input_data has to be a uri_folder or an mltable"
            raise _Wrong(problem, "input_data")
        if bound.value is None or not (bound.is_path or bound.type):
            problem = f"{one} is {bound.value!r}, not a folder or an mltable"
            raise _Wrong(problem, "input_data")
        return bound

    def _append_row_to(self) -> Binding | None:
        """Return the output that rows go to, if there is one."""
        text = self._task_keys.append_row_to
        way = ("append_row_to",) if text is None else ("task", "append_row_to")
        text = self._form.append_row_to if text is None else text
        if text is None:
            return None
        one = self._reference(text, *way)
        if one.scope != "outputs" or one.of_parent or one.name not in self._outputs:
            problem = (
                f"{one} is not an output of this step; {nearest_of(one.name, [*self._outputs])}"
            )
            raise _Wrong(problem, *way)
        return self._outputs[one.name]

    def _script(self) -> TaskForm | None:
        task = self._form.task
        if task is None and self._step.wrong:
            return None
        if task is None or task.entry_script is None:
            way = ("task",) if task is None else ("task", "entry_script")
            raise _Wrong("it is missing", *way)
        return task

    def _find_flags(self) -> None:
        """Split the arguments into those of the system and those of the script."""
        source, (key, text) = self._step.source, self._task_keys.arguments
        try:
            found = words(text, lambda one: self._wiring.resolved(self._step, one))
            self.flags, wrong = split_flags(found)
        except (ExpressionError, ValueError) as error:
            wrong = [str(error)]
        self.mistakes += [source.mistake(problem, "task", key) for problem in wrong]
        warnings = [source.mistake(problem, "task", key) for problem in self.flags.warnings]
        if self._form.partition_keys and self._form.mini_batch_size is not None:
            problem = "it has no effect: partition_keys win"
            warnings.append(source.mistake(problem, "mini_batch_size"))
        self.warnings = [one._replace(is_warning=True) for one in warnings]

    def _reference(self, text: str, *way: str) -> Reference:
        """Return the one expression that a key is."""
        try:
            one = only_reference(parsed(text))
        except ExpressionError as error:
            raise _Wrong(error, *way) from error
        if one is None:
            problem = f"it has to be one expression, as ${{{{inputs.<name>}}}}, not {text!r}"
            raise _Wrong(problem, *way)
        return one

    def _unless_wrong(self, find: Callable[[], T]) -> T | None:
        try:
            return find()
        except _Wrong as error:
            self.mistakes.append(self._step.source.mistake(str(error), *error.way))
            return None

    # ---- options ----

    def _options(self, data: Binding) -> dict[str, Any]:
        form, retry = self._form, self._form.retry_settings or RetryForm()
        threshold = form.mini_batch_error_threshold
        options: dict[str, Any] = {
            "input_type": "auto" if data.type in TABLES else "files",
            "mini_batch_size": form.mini_batch_size,
            "partition_keys": form.partition_keys,
            "process_count_per_node": form.max_concurrency_per_instance,
            "node_count": self._node_count(),
            "logging_level": form.logging_level or "INFO",
            "allowed_failed_count": -1 if threshold is None else threshold,
            "run_max_try": TRIES if retry.max_retries is None else retry.max_retries + 1,
            "run_invocation_timeout": retry.timeout or RUN_SECONDS,
            "arguments": self.flags.arguments,
            "environment_variables": self._variables(),
            "side_inputs": self._side_inputs(data),
            **self.flags.options,
        }
        if form.error_threshold is not None:
            options["error_threshold"] = form.error_threshold
        if form.partition_keys:
            options["mini_batch_size"] = None
        elif form.mini_batch_size is None and data.type not in TABLES:
            options["mini_batch_size"] = FILES
        return {name: value for name, value in options.items() if value is not None}

    def _node_count(self) -> int | None:
        count = (self._form.resources or ResourcesForm()).instance_count
        return None if count == ALL else count or NODES

    def _variables(self) -> dict[str, str]:
        variables = dict(self._form.environment_variables or {})
        if paths := self._wiring.given.assets.paths:
            variables[ASSETS] = json.dumps(dict(paths))
        return variables

    def _side_inputs(self, data: Binding) -> dict[str, str]:
        return {
            name: str(one.value)
            for name, one in self._inputs.items()
            if one.is_path and one is not data and not one.is_unknown
        }

    def _of_output(self, output: Binding | None) -> dict[str, Any]:
        if output is None:
            return {"output_action": "summary_only"}
        name = {"append_row_file_name": output.path.name} if output.is_file else {}
        return {"output_action": "append_row", **name}

    def _output_dir(self, output: Binding | None) -> Any:
        """Return the folder that a script finds as its output folder."""
        if output is not None:
            return output.path.parent if output.is_file else output.path
        folders = [one.path for one in self._outputs.values() if not one.is_file]
        return folders[0] if folders else None


def written(task: Task) -> str:
    """Return a task as text, for the process that runs it."""
    values = {name: getattr(task, name) for name in ("name", "data", "script", "options", "client")}
    for name in ("source_directory", "job_dir", "output_dir"):
        place = getattr(task, name)
        values[name] = None if place is None else str(place)
    return json.dumps(values, indent=1)


def read_task(path: Path) -> Task:
    """Return the task that was written to a file."""
    values = json.loads(path.read_bytes())
    for name in ("source_directory", "job_dir", "output_dir"):
        values[name] = None if values[name] is None else Path(values[name])
    return Task(**values)
