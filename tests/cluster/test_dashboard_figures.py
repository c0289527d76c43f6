"""A job on Dask's own pages: a span that names it, and figures of what its script does."""

from __future__ import annotations

import asyncio
import pickle
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pandas as pd
from distributed import Client, LocalCluster, span

import daskprs
from daskprs._cluster import job_figures
from daskprs._cluster.connect import IN_PROCESS, connected
from daskprs._cluster.job_figures import FigureSender
from tests.support.job_events import stood
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

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
        assert poll_for(lambda: of_job.cumulative_worker_metrics.get(rows) == ROWS)
        assert of_job.cumulative_worker_metrics[seconds] >= ROWS * RUN_S


def test_a_client_that_is_closed_sends_no_figures_and_raises_nothing() -> None:
    """All work of the job may be settled, and the job has succeeded then."""
    with connected(None, 1) as client:
        client.close()
        FigureSender(client, "/jobs/scored", "row").show(stood(), is_last=True)


def test_the_last_figures_are_sent_while_others_are_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A scheduler that answers late shows in the end what the job has done."""
    monkeypatch.setattr(job_figures, "LAST_S", 0.05)
    loop, sent, is_answered = asyncio.new_event_loop(), [], asyncio.Event()

    async def log_event(msg: bytes, **_: str) -> None:
        sent.append(pickle.loads(msg).elapsed_s)
        if len(sent) == 1:
            await is_answered.wait()

    client: Any = SimpleNamespace(
        scheduler=SimpleNamespace(log_event=log_event), loop=SimpleNamespace(asyncio_loop=loop)
    )
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        sender = FigureSender(client, "/jobs/scored", "row")
        for elapsed_s, is_last in ((0.0, False), (10.0, False), (11.0, True)):
            sender.show(stood()._replace(elapsed_s=elapsed_s), is_last=is_last)
        assert poll_for(lambda: sent == [0.0, 11.0])
    finally:
        loop.call_soon_threadsafe(is_answered.set)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
