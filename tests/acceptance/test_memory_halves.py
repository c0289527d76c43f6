"""A size of mini-batch that runs out of memory is found once and kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pytest

import daskprs

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("inline")
ROWS = 512
SCRIPT = """
def run(rows, context):
    with open(CALLS, "a") as file:
        print(len(rows), file=file)
    if len(rows) > 20:
        raise MemoryError("too many")
    first = context.global_row_index_lower_bound
    assert rows["n"].tolist() == [*range(first, first + len(rows))]
    return rows
"""
EATS = """
import time

def run(rows):
    eaten = bytes([1]) * (len(rows) << 20)
    time.sleep(2.5)  # the memory is looked at once a second
    return rows.assign(mb=len(eaten) >> 20)
"""
KEEPS = """
import os
kept = []

def run(rows):
    kept.append(bytes([1]) * (20 << 20))
    return rows.assign(pid=os.getpid())
"""


def score(folder: Path, name: str, text: str = SCRIPT, **options: object) -> pd.DataFrame:
    """Run a job, and return its rows."""
    (folder / "code").mkdir(exist_ok=True)
    script = folder / "code/script.py"
    script.write_text(text.replace("CALLS", repr(str(folder / f"{name}.calls"))))
    result = daskprs.parallel_run(
        pd.DataFrame({"n": range(ROWS)}),
        script,
        job_dir=folder / name,
        progress=False,
        **({"independent_rows": True, "mini_batch_size": "64 rows"} | options),  # type: ignore[arg-type]
    )
    assert result.status == "Completed"
    return result.to_pandas()


def test_the_next_job_begins_with_the_size_that_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost or moved; another limit is another question."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    rows = score(tmp_path, "one", SCRIPT.replace("CALLS", repr(str(tmp_path / "calls"))))
    calls = tmp_path / "calls"
    assert rows["n"].tolist() == [*range(ROWS)]
    first = [*map(int, calls.read_text().split())]
    assert sorted({*first}) == [16, 32, 64]
    assert first.count(64) + first.count(32) <= 4
    calls.unlink()
    again = score(tmp_path, "two", SCRIPT.replace("CALLS", repr(str(calls))))
    pd.testing.assert_frame_equal(again, rows)
    assert {*calls.read_text().split()} == {"16"}
    calls.unlink()
    arguments = ["--model", "larger"]
    score(tmp_path, "three", SCRIPT.replace("CALLS", repr(str(calls))), arguments=arguments)
    assert "64" in calls.read_text().split()


@pytest.mark.processes
@pytest.mark.long
def test_a_process_that_exceeds_its_limit_is_tried_with_less(tmp_path: Path) -> None:
    """It was killed for it; what it was killed for is not charged."""
    rows = score(tmp_path, "job", EATS, agent_memory_limit="350 MB", mini_batch_size="512 rows")
    assert rows["n"].tolist() == [*range(ROWS)]
    assert rows["mb"].max() < 350


@pytest.mark.processes
@pytest.mark.parametrize(
    "options",
    [
        {"agent_max_mini_batches": 3},
        pytest.param({"agent_memory_limit": "500 MB"}, marks=pytest.mark.long),
    ],
)
def test_a_process_that_has_done_enough_ends_between_two_mini_batches(
    options: dict[str, object], tmp_path: Path
) -> None:
    """Nothing is tried twice."""
    rows = score(
        tmp_path, "job", KEEPS, process_count_per_node=1, mini_batch_size="16 rows", **options
    )
    assert rows["n"].tolist() == [*range(ROWS)]
    mini_batches = rows.groupby("pid", sort=False).size() // 16
    assert len(mini_batches) > 1
    if "agent_max_mini_batches" in options:
        assert mini_batches.tolist() == [3] * 10 + [2]
    log = (tmp_path / "job/logs/sys/master_role.txt").read_text()
    assert "retried" not in log
    assert "has done enough" in log
