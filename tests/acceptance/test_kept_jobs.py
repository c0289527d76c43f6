"""Job folders that another version has written are refused before anything runs."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pandas as pd
import pytest

import daskprs
from daskprs._folders.job_folder import JobFolder
from daskprs._job.status import state_of
from daskprs.errors import JournalError

KEPT = Path(__file__).parents[1] / "kept_jobs" / "jobs.tar.gz"
"""Two folders of jobs, over a frame and over files, in the form 2; each failed at its end."""


def unchanged(mini_batch: pd.DataFrame) -> pd.DataFrame:
    """Return a mini-batch as it is."""
    return mini_batch


SAID = r"written by another version of daskprs \(its form is 2, .*, or use another job_dir"


@pytest.mark.parametrize("name", ["frame", "files"])
def test_a_job_folder_of_another_version_is_refused(tmp_path: Path, name: str) -> None:
    """Neither a resume nor a reader takes it, and the folder stays as it is."""
    with tarfile.open(KEPT) as archive:
        archive.extractall(tmp_path, filter="data")
    folder, journals = tmp_path / name, sorted((tmp_path / name).glob("journal*"))
    assert journals
    with pytest.raises(JournalError, match=SAID):
        daskprs.parallel_run(pd.DataFrame({"n": [1]}), unchanged, job_dir=folder, resume=True)
    with pytest.raises(JournalError, match=SAID):
        state_of(JobFolder(folder))
    assert sorted(folder.glob("journal*")) == journals
