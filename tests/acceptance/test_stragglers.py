"""Mini-batches that take long: what is behind them goes to others, and nobody waits in vain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

import daskprs
from daskprs._agent.supervision.lease_run import LeaseRun
from daskprs._core import lease_sizes

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

SCRIPT = """
import time

def run(mini_batch):
    time.sleep(0.8)
    return [len(mini_batch)]
"""


def test_an_agent_that_gave_work_back_is_not_left_with_work_that_it_does_not_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one is loaded while one runs, and what is behind is taken back: both come to an end.

    The same two agents do it all: one that was given more than it takes would be killed as idle.
    """
    monkeypatch.setattr(LeaseRun, "hold_back_s", 0.6)  # the supervisors are in this process
    monkeypatch.setattr(lease_sizes, "RETURN_AFTER_S", 0.1)
    data = tmp_path / "data"
    data.mkdir()
    for number in range(14):  # large enough to be worth loading ahead
        rows = np.full((5000, 4), number)
        pd.DataFrame(rows, columns=list("abcd")).to_csv(data / f"{number:02d}.csv", index=False)
    (tmp_path / "script.py").write_text(SCRIPT)
    result = daskprs.parallel_run(
        data,
        tmp_path / "script.py",
        job_dir=tmp_path / "job",
        process_count_per_node=2,
        task_overhead_timeout=10,
        progress=False,
    )
    assert list(result.to_pandas()["result"]) == [5000] * 14
    logs = result.logs_dir / "user" / "stdout" / "0"
    assert len(list(logs.iterdir())) == 2
