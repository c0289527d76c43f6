"""A resume refuses what another user has made, or may have changed."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest

import daskprs
from daskprs._folders.foreign_folder import refuse_foreign
from daskprs._folders.job_folder import JobFolder
from daskprs._folders.job_lock import locked
from daskprs.errors import JobFolderError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.attack
ANOTHER = 54321
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")


@pytest.fixture
def job(tmp_path: Path) -> JobFolder:
    """Return the folder of a job that has begun."""
    folder = JobFolder(tmp_path / "job")
    folder.create(shared=True)
    folder.path.chmod(0o755)
    folder.call.write_text("{}")
    folder.call.chmod(0o644)
    with locked(folder) as epoch:
        folder.journal(epoch).touch(0o644)
    return folder


def test_ones_own_folder_is_resumed(job: JobFolder) -> None:
    """Also an open one, as long as only its owner writes there."""
    refuse_foreign(job, "score.py")
    job.path.chmod(0o700)
    job.call.chmod(0o666)  # nobody else gets there
    refuse_foreign(job, "score.py")
    refuse_foreign(JobFolder(job.path / "none"), "score.py")


@pytest.mark.parametrize("name", ["", "job.json", "journal.1"])
def test_records_that_others_may_write_do_not_say_what_runs(job: JobFolder, name: str) -> None:
    """The file is named, the script and the option. Who names the script himself may go on."""
    path = job.path / name
    path.chmod(path.stat().st_mode | 0o020)
    words = f"{re.escape(str(path))} may be written by other users.* score.py.*trust=True"
    with pytest.raises(JobFolderError, match=words):
        refuse_foreign(job, "score.py")
    refuse_foreign(job)


def test_a_link_in_place_of_a_record_is_refused(job: JobFolder, tmp_path: Path) -> None:
    """It may lead to a file that another user writes."""
    job.call.rename(tmp_path / "planted.json")
    job.call.symlink_to(tmp_path / "planted.json")
    with pytest.raises(JobFolderError, match="is a link"):
        refuse_foreign(job)


@NEEDS_ROOT
@pytest.mark.parametrize("name", ["", "job.json", "journal.1"])
def test_a_folder_of_another_user_is_refused(job: JobFolder, name: str, tmp_path: Path) -> None:
    """Whoever names the script, since the journal says what is done; also by `parallel_run`."""
    os.chown(job.path / name, ANOTHER, ANOTHER)
    words = f"belongs to another user, uid {ANOTHER}.*trust=True"
    for script in ("", "score.py"):
        with pytest.raises(JobFolderError, match=words):
            refuse_foreign(job, script)
    (tmp_path / "a.txt").touch()
    (tmp_path / "score.py").write_text("def run(files):\n    return files\n")
    with pytest.raises(JobFolderError, match=words):
        daskprs.parallel_run(
            [tmp_path / "a.txt"], tmp_path / "score.py", job_dir=job.path, resume=True
        )
