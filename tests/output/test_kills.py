"""Whatever strikes a driver, and wherever: its resume ends with the bytes of an undisturbed run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cases import mostly_long

PROGRAM = Path(__file__).with_name("kill_at_every_step.py")
GROWING = Path(__file__).with_name("grow_at_every_step.py")
DATA_SET = Path(__file__).with_name("strike_data_set.py")
STEPS = {
    "kill": (1, 13),
    "interrupt": (1, 4),
    "EIO": (2, 5),
    "interrupts": (3, 9),
    "ENOSPC": (4, 9),
}
"""Which operation is struck first, and at which stride others are; `make test-long` takes all."""


GROWING_STEPS = {"kill": (1, 27), "interrupt": (2, 15), "EIO": (3, 12), "ENOSPC": (5, 25)}

DATA_SET_STEPS = {
    "kill": (1, 27),
    "interrupt": (2, 20),
    "EIO": (3, 20),
    "ENOSPC": (5, 30),
    "kill in_two_steps": (4, 20),
    "kill aside": (6, 20),
    "ENOSPC aside": (7, 40),
}
"""The same for a data set; where a file system cannot exchange names; and for parts of workers."""


def run_program(folder: Path, how: str, times: int, first: int = 1, stride: int = 1) -> int:
    """Run the program, and return how many operations it went through; it says what failed."""
    return run(PROGRAM, str(folder), how, str(times), str(first), str(stride))


def run(program: Path, *words: str) -> int:
    """Run a program, and return how many operations it went through; it says what failed."""
    done = subprocess.run(
        [sys.executable, str(program), *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[0])


@pytest.mark.parametrize("how", mostly_long(STEPS, suite=["kill"]))
def test_what_strikes_at_a_file_operation_of_commit_and_publish_changes_no_byte(
    tmp_path: Path, how: str
) -> None:
    """What was acknowledged is never lost, and the job is Completed where its output stands.

    Half of a write is done, then comes SIGKILL, an error of the disk, or no room from then on; or
    Ctrl-C comes after an operation, and, pressed again and again, after each that follows.
    """
    first, stride = STEPS[how]
    assert run_program(tmp_path, how, 1, first, stride) > 50


@pytest.mark.long
def test_a_resume_may_be_killed_as_well(tmp_path: Path) -> None:
    """Three drivers are killed one after the other, the fourth comes through."""
    assert run_program(tmp_path, "kill", 3, 2, 11) > 50


@pytest.mark.parametrize("how", mostly_long(GROWING_STEPS, suite=["kill"]))
def test_what_strikes_while_a_published_output_is_written_anew_changes_no_byte(
    tmp_path: Path, how: str
) -> None:
    """By an extension, and by a retry of what failed: the old output stands, or the new one."""
    assert run(GROWING, str(tmp_path), how, *map(str, GROWING_STEPS[how])) > 50


@pytest.mark.parametrize("how", mostly_long(DATA_SET_STEPS, suite=["kill"]))
def test_readers_of_a_data_set_see_the_old_or_the_new(tmp_path: Path, how: str) -> None:
    """Whatever strikes while parts are written, and exchanged for those of before."""
    steps = map(str, DATA_SET_STEPS[how])
    assert run(DATA_SET, str(tmp_path), *how.split()[:1], *steps, *how.split()[1:]) > 50


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", DATA_SET_STEPS)
def test_the_same_at_any_operation_of_a_data_set(tmp_path: Path, how: str) -> None:
    """None is left out."""
    assert run(DATA_SET, str(tmp_path), *how.split()[:1], "1", "1", *how.split()[1:]) > 50


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", STEPS)
def test_the_same_at_any_operation(tmp_path: Path, how: str) -> None:
    """None is left out."""
    assert run(GROWING, str(tmp_path), how, "1", "1") > 50


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("how", STEPS)
def test_strikes_at_any_operation_change_no_byte(tmp_path: Path, how: str, times: int) -> None:
    """None is left out; struck twice, the resume is so at the same operation as the first."""
    assert run_program(tmp_path, how, times) > 50
