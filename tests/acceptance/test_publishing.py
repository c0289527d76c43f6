"""From the last commit to the result: Completed where the output stands, and never else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cases import mostly_long

PROGRAM = Path(__file__).with_name("publish_at_every_step.py")
STEPS = {
    "kill": (3, 70),
    "interrupt": (4, 15),
    "interrupts": (8, 20),
    "EIO": (6, 17),
    "ENOSPC": (10, 25),
}
"""Which operation is struck first, and at which stride others are; `make test-long` takes all."""


def run_program(folder: Path, how: str, *words: int | str) -> None:
    """Run the program; its complaint is the failure of the test."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), how, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) > 30


@pytest.mark.parametrize("how", mostly_long(STEPS, suite=["kill"]))
def test_a_job_is_completed_if_and_only_if_its_output_stands(tmp_path: Path, how: str) -> None:
    """Whatever strikes while it is published and told; its resume is Completed."""
    run_program(tmp_path, how, *STEPS[how])


@pytest.mark.parametrize("how", mostly_long(["kill", "interrupt"], suite=[]))
def test_the_same_holds_for_a_data_set(tmp_path: Path, how: str) -> None:
    """From its last commit on, parts and manifest included."""
    first, stride = STEPS[how]
    run_program(tmp_path, how, first + 2, stride * 2, "parquet")


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", STEPS)
def test_the_same_at_every_file_operation(tmp_path: Path, how: str) -> None:
    """None of them is left out."""
    run_program(tmp_path, how, 1, 1)
