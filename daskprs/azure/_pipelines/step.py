"""A step that can run: built from its declaration, and checked as far as possible."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from daskprs.azure._pipelines.command_step import CommandStep
from daskprs.azure._pipelines.forms import CommandForm, InnerPipelineForm
from daskprs.azure._pipelines.included_code import KEY, IncludedCode
from daskprs.azure._pipelines.parallel_step import ParallelStep
from daskprs.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from daskprs.azure._pipelines.command_step import Command
    from daskprs.azure._pipelines.component import Declared
    from daskprs.azure._pipelines.values import Binding
    from daskprs.azure._pipelines.wiring import Wiring
    from daskprs.azure._task import Task
    from daskprs.azure._yaml_files.mistakes import Mistake


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
    component: str | None
    """The name of the step's component, if it has one."""

    @property
    def places(self) -> dict[str, Path]:
        """The paths of the step's outputs, by name."""
        return {name: bound.path for name, bound in self.outputs.items()}


def made_step(step: Declared, wiring: Wiring, mistakes: list[Mistake]) -> Step | None:
    """Return a step that can run; append its mistakes, warnings included.

    A step with mistakes is None, and so is one that is a pipeline itself.
    """
    name, form = step.name, step.form
    if isinstance(form, InnerPipelineForm):
        return None
    if step.includes:
        try:
            code = IncludedCode(step.code, step.includes).made_in(wiring.folder.included_code)
        except (UsageError, OSError) as error:
            mistakes.append(step.source.mistake(str(error), KEY))
            return None
        step = replace(step, code=code)
    made = (
        CommandStep(step, form, wiring)
        if isinstance(form, CommandForm)
        else ParallelStep(step, form, wiring)
    )
    mistakes += made.mistakes
    if made.work is None:
        return None
    is_fresh = wiring.parent(step).is_fresh
    shares = wiring.shares(name)
    place = step.code or (None if isinstance(form, CommandForm) else step.source.base)
    is_fixed = form.is_deterministic is not False and not wiring.may_read_blobs(place)
    return Step(
        name=name,
        work=made.work,
        needs=frozenset(wiring.needs(name)),
        inputs=wiring.inputs_of(name),
        outputs=wiring.outputs_of[name],
        others=made.others,
        may_reuse=is_fixed and not is_fresh and not shares,
        shares=shares,
        component=(step.component or form).name,
    )
