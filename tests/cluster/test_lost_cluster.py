"""A cluster that has gone, while a job leaves it."""

from __future__ import annotations

import logging

import pytest

from daskprs._cluster.connect import connected
from daskprs._cluster.lost_cluster import lost_cluster_ignored


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


def test_an_interrupt_while_a_job_leaves_its_cluster_is_heard() -> None:
    """It is a request of the user, and no error of the cluster."""
    with pytest.raises(KeyboardInterrupt), lost_cluster_ignored("to end the job"):
        raise KeyboardInterrupt
