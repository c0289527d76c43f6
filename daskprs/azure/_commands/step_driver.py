"""The driver of a parallel step, in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from daskprs._job.flags import flagged
from daskprs._job.frontend import Surface
from daskprs.azure._pipeline_status import resume_pipeline


def drive_step(path: str, told: dict[str, Any]) -> object:
    """Run the task that a file describes."""
    from daskprs.azure._pipelines.parallel_step import read_task

    task = read_task(Path(path)).with_variables(told.get("variables", {}))
    return task.run(surface=Surface(flagged, resume_pipeline))
