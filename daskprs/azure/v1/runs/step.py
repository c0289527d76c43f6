"""The base of both kinds of steps: an order besides that of their data."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class PipelineStep:
    """One step of a pipeline."""

    after: tuple[PipelineStep, ...] = ()
    """Steps that run before this step, though it reads none of their outputs."""

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
