"""A mini-batch that breaks its process for all that follow: only it fails, and it is said why."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pandas as pd
import pytest

import daskprs
from tests.support.cases import mostly_long

if TYPE_CHECKING:
    from pathlib import Path

BREAKS = """
broken = False

def run(rows):
    global broken
    if broken:
        raise RuntimeError("the connection is closed")
    if 3 in rows["n"].tolist():
        broken = True
        raise ValueError("a bad row")
    return rows

def shutdown():
    print("closed")
"""
ASSERTS = """
class AcceleratorError(RuntimeError):
    pass

poisoned = False

def run(rows):
    global poisoned
    if poisoned or 3 in rows["n"].tolist():
        poisoned = True
        raise AcceleratorError("CUDA error: device-side assert triggered")
    return rows

def shutdown():
    raise SystemExit("a device that hangs would keep it here")
"""


@pytest.mark.parametrize(
    ("script", "run_max_try", "processes"),
    mostly_long(
        product([BREAKS, ASSERTS], [1, 3], [1, 2]), suite=[(BREAKS, 3, 1), (ASSERTS, 1, 2)]
    ),
)
def test_eleven_of_twelve_succeed(
    tmp_path: Path, script: str, run_max_try: int, processes: int
) -> None:
    """The twelfth has its tries, each of them in a process that works."""
    file = tmp_path / "script.py"
    file.write_text(script)
    result = daskprs.parallel_run(
        pd.DataFrame({"n": range(12)}),
        file,
        mini_batch_size=8,
        process_count_per_node=processes,
        run_max_try=run_max_try,
        allowed_failed_count=-1,
        job_dir=tmp_path / "job",
    )
    assert result.to_pandas()["n"].tolist() == [n for n in range(12) if n != 3]
    assert result.failed["mini_batch"].tolist() == [3]
    attempts = pd.read_csv(result.logs_dir / "sys/job_report/processed_mini-batches.csv")
    charged = attempts[attempts["Mini-batch Detail"].str.contains('"charged": true')]
    failed = charged[charged["Status"] != "RUN_DONE"]
    assert failed["Mini-batch Id"].tolist() == [3] * run_max_try
    assert 1 <= result.renewals <= run_max_try + 1
    log = (result.logs_dir / "sys/master_role.txt").read_text()
    assert log.count(" is renewed: ") == result.renewals
    assert "Processes renewed" in (result.logs_dir / "job_result.txt").read_text()
    shut_down = [
        path.read_text() for path in (result.logs_dir / "user/stdout").rglob("*.stdout.txt")
    ]
    if script is BREAKS:
        assert all(text == "closed\n" for text in shut_down), "each was renewed in an orderly way"
