"""A mini-batch that kills the worker that it is on: it is found out, and its neighbours succeed."""

from __future__ import annotations

from multiprocessing import resource_tracker
from typing import TYPE_CHECKING

import dask
import pandas as pd
import pytest
from distributed import LocalCluster

import daskprs
from tests.support.cases import mostly_long
from tests.support.local_servers import LOCAL_SERVERS

if TYPE_CHECKING:
    from pathlib import Path

GUILTY, BESIDE = 38, 39
KILLER = f"""
import os
import signal
import time
from pathlib import Path

def run(rows):
    if rows["number"].iloc[0] == {BESIDE}:
        time.sleep(1)  # it is at work yet when its worker is killed
    if rows["number"].iloc[0] == {GUILTY}:
        time.sleep(0.1)
        zygote = os.getppid()
        worker = Path(f"/proc/{{zygote}}/stat").read_text().rpartition(")")[2].split()[1]
        os.kill(int(worker), signal.SIGKILL)
        signal.pause()
    return list(rows["number"])
"""


@pytest.mark.parametrize(("workers", "slots"), mostly_long([(2, 2), (1, 8)], suite=[(2, 2)]))
def test_what_kills_its_worker_is_failed_after_some_workers(
    workers: int, slots: int, tmp_path: Path
) -> None:
    """The nannies start new workers, which are used; the others are charged nothing."""
    (tmp_path / "script.py").write_text(KILLER)
    with (
        # On a busy machine a new worker may need more than the 15 s after which Dask gives it up.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"}),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=slots,
            **LOCAL_SERVERS,
            silence_logs="CRITICAL",
        ) as cluster,
    ):
        result = daskprs.parallel_run(
            pd.DataFrame({"number": range(40)}),
            tmp_path / "script.py",
            client=cluster.scheduler_address,
            mini_batch_size=1,
            job_dir=tmp_path / "job",
            output_dir=tmp_path / "out",
            run_max_try=1,
            max_node_losses=2,
            allowed_failed_count=1,
            progress=False,
        )
    resource_tracker._resource_tracker._stop()
    assert list(result.failed["mini_batch"]) == [GUILTY]
    assert "was lost while this was at work on it" in result.failed["error"][0]
    assert result.output_file is not None
    innocent = [number for number in range(40) if number != GUILTY]
    assert result.output_file.read_text() == "".join(f"{number}\n" for number in innocent)
