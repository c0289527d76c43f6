"""A cluster that has gone, while a job leaves it."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import psutil
import pytest
from distributed import Client

from daskprs._cluster import scheduler_plugin
from daskprs._cluster.connect import connected
from daskprs._cluster.lost_cluster import lost_cluster_ignored, lost_cluster_named
from daskprs._cluster.scheduler_plugin import JobPlugin, leave
from daskprs.errors import DaskprsError
from tests.support.by_hand import ByHand
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from pathlib import Path

    from distributed import Scheduler

AGAIN_S = 60.0
"""Seconds after which a scheduler goes on that a driver waits for without an end."""


def test_a_call_to_a_cluster_that_has_gone_is_logged_and_raises_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log names what was being done, and has the error of Dask."""
    caplog.set_level(logging.DEBUG, "daskprs.cluster")
    with connected(None, 1) as client:
        pass
    with lost_cluster_ignored("to end the job"):
        client.run_on_scheduler(lambda: None)
    (record,) = (one for one in caplog.records if one.name == "daskprs.cluster")
    assert record.getMessage() == "to end the job: the cluster has gone"
    assert record.exc_info is not None


def test_what_dask_raises_once_its_client_is_closed_has_the_cause() -> None:
    """`Can't send update-graph message` means nothing to whoever closed it in another thread."""
    with connected(None, 1) as client:
        with pytest.raises(ValueError, match="another"), lost_cluster_named(client):
            raise ValueError("another")
        client.close()
        with pytest.raises(DaskprsError, match="client was closed"), lost_cluster_named(client):
            client.submit(len, "x")


def test_an_interrupt_while_a_job_leaves_its_cluster_is_heard() -> None:
    """It is a request of the user, and no error of the cluster."""
    with pytest.raises(KeyboardInterrupt), lost_cluster_ignored("to end the job"):
        raise KeyboardInterrupt


def test_a_job_leaves_a_scheduler_that_has_stopped_and_takes_it_off_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine may be short of memory for a long time, and SIGTERM is followed by a kill."""
    monkeypatch.setattr(scheduler_plugin, "LEAVES_WITHIN_S", 0.5)
    cluster = ByHand(tmp_path)
    scheduler = psutil.Process(cluster.scheduler.pid)
    again = threading.Timer(AGAIN_S, scheduler.resume)
    try:
        with Client(cluster.address, set_as_default=False) as client:
            client.register_plugin(JobPlugin("daskprs-job", ("news",), client.id, b""))
            scheduler.suspend()
            again.start()
            with pytest.raises(TimeoutError):
                leave(client, "daskprs-job", ("news",))
            scheduler.resume()
            assert poll_for(lambda: not client.run_on_scheduler(_has_the_job), AGAIN_S)
    finally:
        again.cancel()
        scheduler.resume()
        cluster.close()


def _has_the_job(dask_scheduler: Scheduler) -> bool:
    return "daskprs-job" in dask_scheduler.plugins
