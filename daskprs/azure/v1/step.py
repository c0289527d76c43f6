"""The base of both kinds of steps, and sequences of steps."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from daskprs.azure.v1.absent import Known
from daskprs.azure.v1.inputs import outputs_in, parameters_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from daskprs.azure.v1.outputs import Output
    from daskprs.azure.v1.parameter import PipelineParameter


class PipelineStep(Known):
    """One step of a pipeline."""

    name: str
    inputs: Sequence[Any]
    side_inputs: Sequence[Any] = ()
    arguments: Sequence[Any]
    outputs: Sequence[Output]
    after: tuple[PipelineStep, ...] = ()
    """Steps that run before this step, though it reads none of their outputs."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @property
    def _given(self) -> list[Any]:
        """Values that may stand for an output of another step, or for a parameter."""
        return [*self.inputs, *self.side_inputs, *self.arguments]

    @property
    def needed(self) -> list[Output]:
        """Outputs that other steps must write before this step."""
        return [one for one in outputs_in(self._given) if one not in self.outputs]

    def parameters(self) -> Iterator[PipelineParameter]:
        """Yield the pipeline parameters that the step uses."""
        return parameters_in(self._given)

    def run_after(self, step: PipelineStep) -> None:
        """Run this step after another step has ended."""
        self.after = (*self.after, step)


class StepSequence(list[Any]):
    """Steps that run one after the other; a list among them stands for steps in any order."""

    def __init__(self, steps: Iterable[Any] = ()) -> None:
        super().__init__(steps)
        for earlier, later in pairwise(self):
            for step in flat(later):
                for before in flat(earlier):
                    step.run_after(before)


def flat(steps: Any) -> Iterator[Any]:
    """Yield steps out of lists of lists."""
    if isinstance(steps, list | tuple):
        for one in steps:
            yield from flat(one)
    else:
        yield steps
