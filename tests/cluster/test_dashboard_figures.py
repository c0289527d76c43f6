"""A job on Dask's own pages: a span that names it, and figures of what its script does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pandas as pd
from distributed import Client, LocalCluster, span

import daskprs
from daskprs.cluster.connect import IN_PROCESS
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 20
RUN_S = 0.05


def test_the_leases_of_a_job_are_in_its_span_with_rows_and_seconds(tmp_path: Path) -> None:
    """The span lies in that of the caller, if there is one; other tasks are not in it."""

    def slow(rows: pd.DataFrame) -> pd.DataFrame:
        time.sleep(RUN_S)
        return rows

    with (
        LocalCluster(threads_per_worker=2, **IN_PROCESS) as cluster,
        Client(cluster) as client,
    ):
        with span("report"):
            daskprs.parallel_run(
                pd.DataFrame({"n": range(ROWS)}),
                slow,
                mini_batch_size=8,
                job_dir=tmp_path / "scored",
                progress=False,
            )
        client.submit(sum, (1, 2)).result()
        spans: Any = cluster.scheduler.extensions["spans"]
        (of_job,) = (one for one in spans.spans.values() if one.name[-1] == "scored")
        assert of_job.name == ("report", "daskprs", "scored")
        assert [group.prefix.name for group in of_job.groups] == ["daskprs"]
        rows, seconds = (
            ("execute", "daskprs", "run", "rows"),
            ("execute", "daskprs", "run", "seconds"),
        )
        # Workers pass figures on with their heartbeats to the scheduler.
        assert poll_for(lambda: of_job.cumulative_worker_metrics.get(rows) == ROWS, 10)
        assert of_job.cumulative_worker_metrics[seconds] >= ROWS * RUN_S
