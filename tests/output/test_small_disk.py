"""A disk that fills up: the job fails with a clear error, and nothing that was done is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cases import mostly_long
from tests.support.mounting import NAMESPACE, can_mount

PROGRAM = Path(__file__).with_name("small_disk.py")
STORIES = {
    "spool": "results come in",
    "journal": "not even a line of the journal fits",
    "output": "the output goes to another disk",
    "part": "half way into the output",
    "data_set": "parts of a data set, while results come in",
    "agent": "an agent puts a large result aside",
    "of_a_large_result": "a job, one of whose results is larger than the disk",
    "of_a_job": "a whole job",
    "of_a_frame": "a frame that is larger than the disk",
    "of_keys": "rows that are brought together by key",
    "of_a_call": "the call itself cannot be saved",
    "of_logs": "a whole job whose script prints much",
}
"""Where the disk gets full."""
SUITE = ["journal", "part"]


@pytest.mark.parametrize("story", mostly_long(STORIES, suite=SUITE))
def test_a_full_disk_loses_nothing(tmp_path: Path, story: str) -> None:
    """The job fails clearly, nothing half stands under the final name, and it can go on."""
    if not can_mount():
        pytest.skip("a small disk cannot be mounted here: no unprivileged mount namespaces")
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        [*NAMESPACE, sys.executable, str(PROGRAM), str(disk), story],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
