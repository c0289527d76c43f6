"""What the tests of this folder share: a job folder, and modules of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daskprs._folders.job_folder import JobFolder
from tests.support.job_runs import new_run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    """Return the folder of a job that is in its first run."""
    job_folder = JobFolder(tmp_path / "job")
    job_folder.create()
    new_run(job_folder, 1)
    return job_folder
