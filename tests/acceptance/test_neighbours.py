"""Jobs beside each other in the folder of their script, as they are by default."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pytest

import daskprs

if TYPE_CHECKING:
    from pathlib import Path

WAITING = """
from pathlib import Path

def run(rows):
    Path({flag!r}).read_text()
    return rows
"""


def test_a_job_goes_on_though_another_one_has_run_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a job leaves in the folder of its script is no change of the script."""
    home, flag = tmp_path / "home", tmp_path / "flag"
    home.mkdir()
    (home / "wait.py").write_text(WAITING.format(flag=str(flag)))
    monkeypatch.chdir(home)
    rows = pd.DataFrame({"n": [1, 2]})
    failed = []
    for _ in range(2):
        with pytest.raises(daskprs.ParallelRunFailed) as caught:
            daskprs.parallel_run(rows, "wait.py", run_max_try=1, process_count_per_node=1)
        assert caught.value.result is not None
        failed.append(caught.value.result.job_dir)

    flag.touch()
    result = daskprs.parallel_run(rows, "wait.py", job_dir=failed[0], resume=True)

    assert result.to_pandas().equals(rows)
    assert not list(failed[1].glob("snapshot/*/daskprs-jobs/*"))
