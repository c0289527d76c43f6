"""What a try of a step has left that is to be made anew: nobody is to take it for its output."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from daskprs.job_folder import JobFolder
from daskprs.job_lock import has_begun

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from daskprs.azure.pipelines.step import Step
    from daskprs.pipeline_folder import PipelineFolder


def clear(step: Step, folder: PipelineFolder) -> None:
    """Remove the outputs of a step from the folder of the run; a job that goes on needs its own.

    What lies elsewhere is the user's, and may be more than an output; so may what is shared.
    """
    if has_begun(JobFolder(folder.step(step.name))):
        return
    for place in _places(step, folder):
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)


def _places(step: Step, folder: PipelineFolder) -> Iterator[Path]:
    yield folder.step(step.name) / "outputs"
    for bound in () if step.shares else step.outputs.values():
        if folder.path in bound.path.parents:
            yield bound.path
