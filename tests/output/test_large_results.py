"""Large results and many mini-batches: how much memory they take."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from daskprs._output.journal.commits import Commits, CommitTable
from daskprs._output.spool import Regions

SCRIPTS = Path(__file__).parents[1] / "scripts"
LARGE_RESULT_MB = int(os.environ.get("LARGE_RESULT_MB", "300"))
"""`make test-long` and `make test-large` say more; three times as much is needed on the disk."""
ALLOWED_MB = 300
"""For a process, beside what `run` itself holds (here one block or line: 11 MB)."""
PATIENCE_S = 150 + LARGE_RESULT_MB / 5


def measured(script: str, folder: Path) -> list[float]:
    """Return what a script prints of a large job."""
    try:
        done = subprocess.run(
            [sys.executable, str(SCRIPTS / script), str(folder), str(LARGE_RESULT_MB)],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
    finally:
        shutil.rmtree(folder)  # pytest would keep it for a while
    assert done.returncode == 0, done.stderr
    numbers: list[float] = json.loads(done.stdout)
    return numbers


@pytest.mark.long
@pytest.mark.timeout(PATIENCE_S + 30)
def test_a_large_result_passes_through_processes_that_stay_small(tmp_path: Path) -> None:
    """One mini-batch returns it: frames, arrays and lines, kept as text and with their types."""
    output_bytes, agent_mb, driver_mb = measured("one_large_job.py", tmp_path)
    assert output_bytes >= LARGE_RESULT_MB * 1_000_000
    assert max(agent_mb, driver_mb) < ALLOWED_MB


@pytest.mark.long
@pytest.mark.timeout(PATIENCE_S + 30)
def test_a_large_data_set_passes_through_a_driver_that_stays_small(tmp_path: Path) -> None:
    """And two workers of 500 MB sum it up."""
    row_bytes, driver_mb, is_right = measured("one_large_data_set.py", tmp_path)
    assert row_bytes == LARGE_RESULT_MB * 1_000_000
    assert driver_mb < ALLOWED_MB
    assert is_right


def test_a_million_commits_take_less_than_100_mb() -> None:
    """Measured with some of them, found again one by one."""
    count = 20_000
    table = CommitTable()
    tracemalloc.start()
    try:
        for index in range(count):
            region = Regions([index * 1000], [1000], [2**32 - 1])
            one = [f"part {index}"], [1], [index], [10], [10], None, region, region, ["a b\n"]
            table.add(Commits(*one), 1)
        last = table.row_of(count - 1, f"part {count - 1}")
        assert table.values(last)["text_offset"] == (count - 1) * 1000
        assert table.row_of(count, f"part {count}") is None
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken / count < 100
    table.keep(np.arange(count) % 2 == 1)
    assert table.row_of(7, "part 7") is not None
    assert table.row_of(8, "part 8") is None
