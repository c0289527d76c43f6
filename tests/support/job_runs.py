"""What drivers leave in a job folder when they begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from daskprs._folders.job_folder import JobFolder


def new_run(folder: JobFolder, epoch: int) -> None:
    """Begin a run."""
    folder.epoch(epoch).touch()
    folder.journal(epoch).touch()
