"""`Pipeline`: steps in the order in which they need each other."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

from daskprs.azure.v1.experiment import Experiment
from daskprs.azure.v1.published import refuse_publishing
from daskprs.azure.v1.step import flat
from daskprs.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from daskprs.azure.v1.experiment import PipelineRun
    from daskprs.azure.v1.parameter import PipelineParameter
    from daskprs.azure.v1.workspace import Workspace


class Pipeline:
    """Steps, and those that write what they need.

    Parameters
    ----------
    workspace : Workspace, optional
        Whose models scripts find.
    steps : list
        Steps; the steps whose outputs they need are added automatically.
    **rest
        Without effect.

    Raises
    ------
    UsageError
        When steps need each other in a circle, or two have one name or one output.

    """

    def __init__(
        self,
        workspace: Workspace | None = None,
        steps: Sequence[Any] = (),
        description: str | None = None,
        **rest: Any,
    ) -> None:
        self.workspace = workspace
        self.description = description
        self.steps = _in_order(flat(steps))
        names = [step.name for step in self.steps]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            msg = f"steps: two steps are called {twice[0]!r}. Each needs a name of its own."
            raise UsageError(msg)
        _refuse_one_place(self.steps)

    def __repr__(self) -> str:
        return f"Pipeline({', '.join(step.name for step in self.steps)})"

    def validate(self) -> list[str]:
        """Return an empty list: the constructor already refuses mistakes."""
        return []

    def parameters(self) -> Iterator[PipelineParameter]:
        """Yield the pipeline parameters that its steps use."""
        for step in self.steps:
            yield from step.parameters()

    def submit(self, experiment_name: str, **given: Any) -> PipelineRun:
        """Run it, as `Experiment.submit` does."""
        return Experiment(self.workspace, experiment_name).submit(self, **given)

    publish = refuse_publishing


def _refuse_one_place(steps: Iterable[Any]) -> None:
    """Refuse outputs that would be mixed in one folder: one of two steps, or two of one name."""
    writers: dict[Any, str] = {}
    for step in steps:
        for one in step.outputs:
            is_named = one.datastore is not None and "{output-name}" in one.path
            place = (one.datastore.root, one.path, one.name) if is_named else one
            other = writers.setdefault(place, step.name)
            if other != step.name:
                msg = (
                    f"steps: {other!r} and {step.name!r} both write the output {one.name!r}. Give "
                    "each one of a name of its own; a step that reads it has it among its inputs."
                )
                raise UsageError(msg)


def _in_order(steps: Iterable[Any]) -> list[Any]:
    """Return steps and the steps that they need, each after its needs."""
    graph: dict[Any, list[Any]] = {}
    waiting = list(steps)
    while waiting:
        step = waiting.pop(0)
        if step in graph:
            continue
        graph[step] = [one.producer for one in step.needed if one.producer is not None]
        graph[step] += step.after
        waiting += graph[step]
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        circle = " needs ".join(repr(step.name) for step in reversed(error.args[1]))
        msg = f"steps: they need each other in a circle: {circle}."
        raise UsageError(msg) from error
