"""A parallel step as a task: its keys, flags and values in the words of `daskprs.parallel_run`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs._agent.script.checked_script import check_script
from daskprs._job.flags import flagged
from daskprs._job.frontend import Surface
from daskprs._suggest import nearest_of
from daskprs.azure._assets import Assets
from daskprs.azure._expressions import ExpressionError, only_reference, parsed, plain_options, words
from daskprs.azure._pipelines.forms import ALL, ResourcesForm, RetryForm, TaskForm
from daskprs.azure._pipelines.values import Binding, takes_path
from daskprs.azure._system_flags import Flags, read_flags
from daskprs.azure._task import Task
from daskprs.errors import ScriptError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daskprs.azure._pipelines.component import Declared
    from daskprs.azure._pipelines.forms import ParallelForm
    from daskprs.azure._pipelines.wiring import Wiring
    from daskprs.azure._yaml_files.mistakes import Mistake

TRIES, RUN_SECONDS, NODES, FILES = 3, 60, 1, 1
"""Defaults of a parallel job."""
TABLES = ("mltable",)
SCRIPT = ("task", "entry_script")
OF_PATHS = (
    "{} is a uri_folder, whose files have no keys. Make it an mltable, whose MLTable gives keys to "
    "paths by extract_columns_from_partition_format, or reads tables that have these columns"
)


class ParallelStep:
    """Builds and checks the task of a step; `work` is None when the step has mistakes."""

    def __init__(self, step: Declared, form: ParallelForm, wiring: Wiring) -> None:
        self.mistakes: list[Mistake] = []
        """All mistakes of the step, warnings included."""
        self.work: Task | None = None
        self._step = step
        self._form = form
        self._task_keys = form.task or TaskForm()
        self._wiring = wiring
        self._inputs = wiring.inputs_of(step.name)
        self._outputs = wiring.outputs_of[step.name]
        data, output, script = self._data(), self._append_row_to(), self._script()
        self._flags, warnings = self._read_arguments()
        if not self.mistakes and data is not None and script is not None:
            self.work = self._task(data, output, script)
            self._check(self.work)
        elif script is not None:
            self._check_script(script)
        self.others = self._flags.others
        """System flags that do not set an option of the job."""
        self.mistakes += warnings

    def _task(self, data: Binding, output: Binding | None, script: str) -> Task:
        options = {**self._options(data), **self._of_output(output)}
        environment = self._step.environment
        if environment.python is not None:
            options["python"] = environment.python
        more = dict(self._wiring.given.options)
        if "secrets" in more:  # other steps may have the others
            known = {*os.environ, *(options.get("environment_variables") or {})}
            more["secrets"] = [name for name in more["secrets"] if name in known]
        return Task(
            name=self._step.name,
            data=str(data.value),
            script=script,
            source_directory=self._step.code or self._step.source.base,
            options={**options, **more},
            job_dir=self._wiring.folder.step(self._step.name),
            output_dir=self._output_dir(output),
            names_output=output is not None,
            client=self._wiring.given.client,
            assets=self._wiring.given.assets,
            other_python=environment.way,
            has_workspace=False,
        )

    # ---- what the keys refer to ----

    def _wrong(self, problem: object, *way: str) -> None:
        self.mistakes.append(self._step.source.mistake(str(problem), *way))

    def _data(self) -> Binding | None:
        """Return the input that is cut into mini-batches."""
        text = self._form.input_data
        if text is None:
            if not self._step.wrong:  # otherwise the key may be one of those
                self._wrong("it is missing: it names an input, ${{inputs.<name>}}", "input_data")
            return None
        bound = self._port(text, self._inputs, "inputs", "input_data")
        if bound is None:
            return None
        if bound.is_file or not takes_path(bound.type or "uri_folder"):
            problem = f"{text} is a {bound.type}: input_data has to be a uri_folder or an mltable"
        elif bound.value is None or not (bound.is_path or bound.type):
            problem = f"{text} is {bound.value!r}, not a folder or an mltable"
        else:
            if self._form.partition_keys and bound.type not in TABLES:
                self._wrong(OF_PATHS.format(text), "partition_keys")
            return bound
        self._wrong(problem, "input_data")
        return None

    def _append_row_to(self) -> Binding | None:
        """Return the output that rows go to, if there is one."""
        if (text := self._task_keys.append_row_to) is not None:
            return self._port(text, self._outputs, "outputs", "task", "append_row_to")
        if (text := self._form.append_row_to) is not None:
            return self._port(text, self._outputs, "outputs", "append_row_to")
        return None

    def _port(
        self, text: str, ports: Mapping[str, Binding], scope: str, *way: str
    ) -> Binding | None:
        """Return the input or output of this step that a key names; report any other text."""
        try:
            one = only_reference(parsed(text))
        except ExpressionError as error:
            self._wrong(error, *way)
            return None
        if one is None:
            problem = f"it has to be one expression, as ${{{{{scope}.<name>}}}}, not {text!r}"
        elif one.scope != scope or one.of_parent or one.name not in ports:
            problem = f"{one} is not an {scope[:-1]} of this step; {nearest_of(one.name, [*ports])}"
        else:
            return ports[one.name]
        self._wrong(problem, *way)
        return None

    def _script(self) -> str | None:
        task = self._form.task
        if task is None and not self._step.wrong:
            self._wrong("it is missing", "task")
        elif task is not None and task.entry_script is None:
            self._wrong("it is missing", *SCRIPT)
        return self._task_keys.entry_script

    def _read_arguments(self) -> tuple[Flags, list[Mistake]]:
        """Return the arguments of the script and the system flags among them, with warnings."""
        source, (key, text) = self._step.source, self._task_keys.arguments
        flags = Flags({}, {}, [], [])
        try:
            found = words(text, lambda one: self._wiring.resolved(self._step, one))
            flags, wrong = read_flags(found)
        except (ExpressionError, ValueError) as error:
            wrong = [str(error)]
        for problem in wrong:
            self._wrong(problem, "task", key)
        told = [*flags.warnings, *plain_options(text)]
        warnings = [source.warning(problem, "task", key) for problem in told]
        if self._form.partition_keys and self._form.mini_batch_size is not None:
            problem = "it has no effect: partition_keys win"
            warnings.append(source.warning(problem, "mini_batch_size"))
        return flags, warnings

    # ---- checks ----

    def _check_script(self, script: str) -> None:
        """Check that the script exists, for a step that cannot be checked as a whole."""
        root = self._step.code or self._step.source.base
        if not root.is_dir():
            return
        try:
            check_script(root / script if (root / script).is_file() else script, root)
        except UsageError as error:
            self._wrong(error, *SCRIPT)

    def _check(self, task: Task) -> None:
        """Check a task as far as possible before the steps that it needs have run."""
        step, wiring = self._step, self._wiring
        is_ready = not wiring.needs(step.name) and not step.wrong and wiring.is_there(step.name)
        ours = task.output_dir is not None and wiring.folder.path in Path(task.output_dir).parents
        changes = {"overwrite": True} if wiring.given.resume or ours else {}
        if step.code is not None and not step.code.is_dir():
            return  # already reported, and the cause of any later mistake
        try:
            task.check(with_data=is_ready, **changes)
        except UsageError as error:
            way = SCRIPT if isinstance(error, ScriptError) else ()
            self._wrong(error.worded(wiring.given.surface.option), *way)

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
            "arguments": self._flags.arguments,
            "environment_variables": self._variables(),
            "side_inputs": self._side_inputs(data),
            **self._flags.options,
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
        root = self._step.code or self._step.source.base
        ports = self._wiring.port_variables(self._step.name)
        given = self._form.environment_variables or {}
        return {**ports, **given, **self._wiring.asset_variables(root)}

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


def written(task: Task, variables: Mapping[str, Any]) -> str:
    """Return a task as text, with these environment variables in place of its own."""
    values = {name: getattr(task, name) for name in ("name", "data", "script", "options", "client")}
    for name in ("source_directory", "job_dir", "output_dir"):
        place = getattr(task, name)
        values[name] = None if place is None else str(place)
    values["options"] = {**task.options, "environment_variables": variables}
    values["names_output"] = task.names_output
    places = {"paths": task.assets.paths, "datastores": task.assets.datastores}
    values["assets"] = {name: dict(known) for name, known in places.items()}
    return json.dumps(values, indent=1)


def read_task(path: Path) -> Task:
    """Return the task that was written to a file."""
    values = json.loads(path.read_bytes())
    for name in ("source_directory", "job_dir", "output_dir"):
        values[name] = None if values[name] is None else Path(values[name])
    return Task(**{**values, "assets": Assets(**values["assets"])})


def drive_step(path: str, told: dict[str, Any]) -> object:
    """Run the task that a file describes, in a process of its own."""
    from daskprs.azure._pipeline_status import resume_pipeline  # it imports what no check needs

    task = read_task(Path(path)).with_variables(told.get("variables", {}))
    return task.run(surface=Surface(flagged, resume_pipeline))
