"""Job folders that an earlier version has written are gone on with."""

from __future__ import annotations

import fcntl
import shutil
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import daskprs
from tests.kept_jobs import make

if TYPE_CHECKING:
    from collections.abc import Iterator

KEPT = Path(__file__).parents[1] / "kept_jobs"

FIRST_OF_THE_LAST = {"frame": "36", "files": "35"}
"""The first number of the mini-batch that had failed."""


@pytest.fixture
def kept_jobs() -> Iterator[None]:
    """Unpack the job folders where they were made: a journal holds absolute paths."""
    with Path(f"{make.PLACE}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another suite may use the same folder
        shutil.rmtree(make.PLACE, ignore_errors=True)
        make.PLACE.mkdir()
        with tarfile.open(KEPT / "jobs.tar.gz") as archive:
            archive.extractall(make.PLACE, filter="tar")
        (make.PLACE / "mended").touch()
        yield
        shutil.rmtree(make.PLACE)


@pytest.mark.usefixtures("kept_jobs")
def test_job_folders_of_an_earlier_version_resume() -> None:
    """Only the mini-batch that failed runs again, and the output is that of a serial run."""
    script, seen = make.PLACE / "script" / "score.py", make.PLACE / "seen.txt"
    table = make.table()
    whole = table.assign(n=table["n"] * 10).to_csv(index=False)
    for name, first in FIRST_OF_THE_LAST.items():
        result = daskprs.parallel_run(make.data(name), script, **make.options(name), resume=True)
        assert result.status == "Completed"
        assert Path(str(result.output_file)).read_text() == whole
        assert seen.read_text().split() == [first]
        seen.unlink()
