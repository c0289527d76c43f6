"""A step that can run: built from its declaration, and checked as far as possible."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs.agent.script.checked_script import check_script
from daskprs.azure.pipelines.command_step import CommandStep
from daskprs.azure.pipelines.forms import CommandForm
from daskprs.azure.pipelines.parallel_step import ParallelStep
from daskprs.errors import ScriptError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daskprs.azure.pipelines.command_step import Command
    from daskprs.azure.pipelines.component import Declared
    from daskprs.azure.pipelines.forms import ParallelForm
    from daskprs.azure.pipelines.values import Binding
    from daskprs.azure.pipelines.wiring import Wiring
    from daskprs.azure.task import Task
    from daskprs.yaml_files.mistakes import Mistake

SCRIPT = ("task", "entry_script")


@dataclass(frozen=True)
class Step:
    """A step that can be run."""

    name: str
    work: Task | Command
    needs: frozenset[str]
    inputs: Mapping[str, Binding]
    outputs: Mapping[str, Binding]
    others: Mapping[str, Any]
    """System flags that do not set an option of the job."""
    may_reuse: bool
    """Whether the step may reuse the result of an identical earlier run."""
    shares: bool
    """Whether the step's outputs overlap its inputs or other steps' outputs."""


class StepMaker:
    """Builds steps, and collects their mistakes; a fresh step reuses no earlier result."""

    def __init__(self, wiring: Wiring, *, is_fresh: bool = False) -> None:
        self.mistakes: list[Mistake] = []
        """All mistakes of the steps, warnings included."""
        self._wiring = wiring
        self._given = wiring.given
        self._is_fresh = is_fresh

    def made(self, step: Declared) -> Step | None:
        """Return a step that can run; None when it has mistakes."""
        wiring, name, form = self._wiring, step.name, step.form
        others: dict[str, Any] = {}
        work: Task | Command | None
        if isinstance(form, CommandForm):
            command = CommandStep(step, form, wiring)
            self.mistakes += command.mistakes
            work = command.command
        else:
            work, others = self._task(step, form)
        if work is None:
            return None
        shares = wiring.shares(name)
        may_reuse = form.is_deterministic is not False and not self._is_fresh and not shares
        needs, inputs = frozenset(wiring.needs(name)), wiring.inputs_of(name)
        return Step(name, work, needs, inputs, wiring.outputs_of[name], others, may_reuse, shares)

    def _task(self, step: Declared, form: ParallelForm) -> tuple[Task | None, dict[str, Any]]:
        """Return the task of a parallel step, and its other flags."""
        parallel = ParallelStep(step, form, self._wiring)
        self.mistakes += [*parallel.mistakes, *parallel.warnings]
        if parallel.task is None:
            if form.task is not None and form.task.entry_script is not None:
                self._check_script(step, form.task.entry_script)
            return None, {}
        options = {**parallel.task.options, **self._given.options}
        task = replace(parallel.task, options=options, client=self._given.client)
        self._check(step, task)
        return task, parallel.flags.others

    def _check_script(self, step: Declared, script: str) -> None:
        """Check that the script exists, for a step that cannot be checked as a whole."""
        root = step.code or step.source.base
        if not root.is_dir():
            return
        try:
            check_script(root / script if (root / script).is_file() else script, root)
        except UsageError as error:
            self.mistakes.append(step.source.mistake(str(error), *SCRIPT))

    def _check(self, step: Declared, task: Task) -> None:
        """Check a task as far as possible before the steps that it needs have run."""
        wiring = self._wiring
        is_ready = not wiring.needs(step.name) and not step.wrong and wiring.is_there(step.name)
        ours = task.output_dir is not None and wiring.folder.path in Path(task.output_dir).parents
        changes = {"overwrite": True} if self._given.resume or ours else {}
        if step.code is not None and not step.code.is_dir():
            return  # already reported, and the cause of any later mistake
        try:
            task.check(with_data=is_ready, **changes)
        except UsageError as error:
            way = SCRIPT if isinstance(error, ScriptError) else ()
            problem = error.worded(self._given.surface.option)
            self.mistakes.append(step.source.mistake(problem, *way))
