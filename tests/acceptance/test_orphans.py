"""The process that agents are forked from may be killed: nobody is to blame for that."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pandas as pd

import daskprs

if TYPE_CHECKING:
    from pathlib import Path


def test_what_ran_when_its_zygote_was_killed_runs_again_uncharged(tmp_path: Path) -> None:
    """One attempt is all that it has."""
    marker = tmp_path / "marker"

    def run(mini_batch: pd.DataFrame) -> list[int]:
        number = int(mini_batch["number"].iloc[0])
        if number == 2 and not marker.exists():
            marker.touch()
            os.kill(os.getppid(), signal.SIGKILL)
            signal.pause()
        return [number]

    result = daskprs.parallel_run(
        pd.DataFrame({"number": range(6)}),
        run,
        mini_batch_size=1,
        run_max_try=1,
        process_count_per_node=2,
        job_dir=tmp_path / "job",
        progress=False,
    )
    assert list(result.to_pandas()["result"]) == list(range(6))


def test_a_script_that_always_kills_it_ends_the_job(tmp_path: Path) -> None:
    """With what happened, and where to look."""

    def run(mini_batch: pd.DataFrame) -> list[int]:
        del mini_batch
        os.kill(os.getppid(), signal.SIGKILL)
        signal.pause()
        return []

    try:
        daskprs.parallel_run(
            pd.DataFrame({"number": range(2)}),
            run,
            process_count_per_node=1,
            job_dir=tmp_path / "job",
            progress=False,
        )
    except daskprs.ParallelRunFailed as error:
        message = str(error)
    assert "was killed 5 times" in message
