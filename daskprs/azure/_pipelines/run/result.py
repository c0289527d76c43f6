"""The result of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from daskprs._report.humanize import counted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMPLETED, FAILED, CANCELED, NOT_STARTED = "Completed", "Failed", "Canceled", "NotStarted"
INTERRUPTED = "Interrupted"


class StepResult(NamedTuple):
    """The result of a step."""

    status: str
    """``"Completed"``, ``"Failed"``, ``"Canceled"``, ``"Interrupted"`` or ``"NotStarted"``."""
    folder: Path
    """The folder of the step; for a parallel step, the job folder."""
    log: Path
    """The file with the output of the step's process."""
    outputs: dict[str, Path]
    elapsed_s: float = 0.0
    component: str | None = None
    """The name of the step's component, if it has one."""
    failed_mini_batches: int = 0
    """Number of mini-batches of a parallel step that failed."""


def in_words(failed_mini_batches: int) -> str:
    """Return how many mini-batches failed, for the end of a line; empty for none."""
    return f", {counted(failed_mini_batches, 'mini-batch')} failed" if failed_mini_batches else ""


@dataclass(frozen=True, repr=False)
class PipelineResult:
    """The result of a pipeline, with the places of its files.

    Attributes
    ----------
    status : str
        ``"Completed"``, ``"Failed"``, ``"Canceled"`` or ``"Interrupted"``.
    steps : dict of str to StepResult
        Each with `status`, `folder`, `log`, `outputs`, `elapsed_s`, `component` and
        `failed_mini_batches`.
    outputs : dict of str to Path
        The outputs of the pipeline.
    folder : Path
        The folder of the run, with a folder for each step.
    elapsed_s : float
        Seconds from the call to the result.

    """

    status: str
    steps: dict[str, StepResult]
    outputs: dict[str, Path]
    folder: Path
    elapsed_s: float

    def __repr__(self) -> str:
        """Return a line for each step and each output."""
        width = max(map(len, (*self.steps, *self.outputs, "folder")))
        lines = [f"<daskprs pipeline {self.status}>"]
        for name, step in self.steps.items():
            took = f"{step.elapsed_s:.1f} s" if step.elapsed_s else ""
            ended = f"{step.status:<11} {took}".rstrip() + in_words(step.failed_mini_batches)
            lines.append(f"  {name:<{width}}  {ended}")
            lines += [f"    {port}: {path}" for port, path in self._own_outputs(step)]
        lines += [f"  {name:<{width}}  {path}" for name, path in self.outputs.items()]
        return "\n".join([*lines, f"  {'folder':<{width}}  {self.folder}"])

    def _own_outputs(self, step: StepResult) -> Iterator[tuple[str, Path]]:
        """Yield the outputs of a step that are not outputs of the pipeline."""
        for port, path in step.outputs.items():
            if path not in self.outputs.values() and path.exists():
                yield port, path
