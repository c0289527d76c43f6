"""What becomes of a collection when the workers that compute it go."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import dask.dataframe as dd
import pandas as pd
from distributed import Client, LocalCluster

import daskprs
from tests.support.local_servers import LOCAL_SERVERS

if TYPE_CHECKING:
    from pathlib import Path


def fatal_once(number: int, mark: Path) -> pd.DataFrame:
    """Return a partition; the first time, the third one ends its worker."""
    if number == 2 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return pd.DataFrame({"n": [number]})


def test_partitions_of_the_only_worker_are_computed_by_the_next(tmp_path: Path) -> None:
    """When it dies, no worker is there for a while."""
    (tmp_path / "script.py").write_text("def run(rows):\n    return list(rows['n'])\n")
    made = dd.from_map(fatal_once, range(6), mark=tmp_path / "mark", meta={"n": int})
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, **LOCAL_SERVERS) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        result = daskprs.parallel_run(
            made,
            tmp_path / "script.py",
            client=client,
            job_dir=tmp_path / "job",
            output_dir=tmp_path / "out",
            progress=False,
        )
    assert result.output_file is not None
    assert result.output_file.read_text().split() == [*"012345"]
