"""Large results and many mini-batches: how much memory they take."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from daskprs.output.commits import Commits, CommitTable, Regions

PROGRAM = Path(__file__).with_name("one_large_result.py")
ALLOWED_MB = 300
"""For a process, beside what `run` itself holds (here one block or line: 11 MB)."""


def peaks_mb(folder: Path, megabytes: int, timeout_s: float) -> list[float]:
    """Return the peaks of agent and driver."""
    try:
        done = subprocess.run(
            [sys.executable, str(PROGRAM), str(folder), str(megabytes)],
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
    finally:
        shutil.rmtree(folder)  # pytest would keep it for a while
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_result_of_300_mb_passes_through_processes_that_stay_small(tmp_path: Path) -> None:
    """Text and typed rows, frames, arrays and lines."""
    assert max(peaks_mb(tmp_path, 300, 60)) < ALLOWED_MB


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_result_of_10_gb_passes_through_processes_that_stay_small(tmp_path: Path) -> None:
    """The same, in full."""
    assert max(peaks_mb(tmp_path, 10_000, 850)) < ALLOWED_MB


def test_a_million_commits_take_less_than_100_mb() -> None:
    """Measured with a tenth of them, found again one by one."""
    count = 100_000
    table = CommitTable()
    tracemalloc.start()
    try:
        for index in range(count):
            region = Regions([index * 1000], [1000], [2**32 - 1])
            one = [f"part {index}"], [1], [index], [10], [10], None, region, region, ["a b\n"]
            table.add(Commits(*one), 1)
        assert table.find(count - 1, f"part {count - 1}").text.offset == (count - 1) * 1000
        assert table.find(count, f"part {count}") is None
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken / count < 100
    table.keep(np.arange(count) % 2 == 1)
    assert table.find(7, "part 7") is not None
    assert table.find(8, "part 8") is None
