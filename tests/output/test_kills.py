"""Whatever kills a driver, and wherever: its resume ends with the bytes of an undisturbed run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("kill_at_every_step.py")


def run_program(folder: Path, times: int, stride: int) -> str:
    """Run the program, and return what it printed; its complaint is the failure of the test."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), str(times), str(stride)],
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_kill_at_any_file_operation_of_commit_and_publish_changes_no_byte(tmp_path: Path) -> None:
    """Half of a write is done, then SIGKILL; what was acknowledged is never lost."""
    operations = int(run_program(tmp_path, times=1, stride=1).split()[0])
    assert operations > 50


def test_a_resume_may_be_killed_as_well(tmp_path: Path) -> None:
    """Three drivers are killed one after the other, the fourth comes through."""
    run_program(tmp_path, times=3, stride=7)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_two_kills_at_any_operation_change_no_byte(tmp_path: Path) -> None:
    """The resume is killed at the same operation as the first driver."""
    run_program(tmp_path, times=2, stride=1)
