"""A job that is prepared on a cluster without workers ends, if its caller says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dask.dataframe as dd
import pandas as pd
import pytest
from distributed import Client, LocalCluster

import daskprs
from tests.support.cases import mostly_long
from tests.support.local_servers import LOCAL_SERVERS

if TYPE_CHECKING:
    from pathlib import Path

FRAME = pd.DataFrame({"key": [1, 2] * 50, "value": range(100)})


@pytest.mark.parametrize("of_dask", mostly_long([False, True], suite=[False]))
def test_no_workers_timeout_ends_the_dealing_of_rows(tmp_path: Path, *, of_dask: bool) -> None:
    """Of a table that the driver cuts, and of partitions that workers compute."""
    data = dd.from_pandas(FRAME, npartitions=2) if of_dask else FRAME
    with (
        LocalCluster(n_workers=0, **LOCAL_SERVERS) as cluster,
        Client(cluster, set_as_default=False) as client,
        pytest.raises(daskprs.DaskprsError, match="no worker for more than no_workers_timeout=1 s"),
    ):
        daskprs.parallel_run(
            data,
            lambda rows: rows,
            partition_keys="key",
            client=client,
            no_workers_timeout=1,
            job_dir=tmp_path / "job",
            progress=False,
        )
