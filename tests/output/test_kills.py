"""Whatever strikes a driver, and wherever: its resume ends with the bytes of an undisturbed run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("kill_at_every_step.py")
STRIDES = {"kill": 1, "interrupt": 1, "EIO": 2, "interrupts": 3, "ENOSPC": 3}


def run_program(folder: Path, how: str, times: int, stride: int) -> str:
    """Run the program, and return what it printed; its complaint is the failure of the test."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), how, str(times), str(stride)],
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("how", STRIDES)
def test_what_strikes_at_a_file_operation_of_commit_and_publish_changes_no_byte(
    tmp_path: Path, how: str
) -> None:
    """What was acknowledged is never lost, and the job is Completed where its output stands.

    Half of a write is done, then comes SIGKILL, an error of the disk, or no room from then on; or
    Ctrl-C comes after an operation, and, pressed again and again, after each that follows.
    """
    operations = int(run_program(tmp_path, how, times=1, stride=STRIDES[how]).split()[0])
    assert operations > 50


def test_a_resume_may_be_killed_as_well(tmp_path: Path) -> None:
    """Three drivers are killed one after the other, the fourth comes through."""
    run_program(tmp_path, "kill", times=3, stride=7)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", STRIDES)
def test_two_strikes_at_any_operation_change_no_byte(tmp_path: Path, how: str) -> None:
    """The resume is struck at the same operation as the first driver."""
    run_program(tmp_path, how, times=2, stride=1)
