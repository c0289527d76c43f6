"""The cluster that a job runs on."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import dask
import pytest

from daskprs.agent.site import Mark, Origin
from daskprs.cluster.connect import QUIET, connected
from daskprs.cluster.session import Session
from daskprs.core.limits import Limits
from daskprs.errors import DaskprsError

if TYPE_CHECKING:
    from daskprs.agent.messages import JobSpec


def test_a_cluster_that_has_gone_is_told_in_plain_words(a_job: JobSpec) -> None:
    """Not by what some part of Dask says that was closed with it."""
    with connected(None, 1) as client:
        origin = Origin("", Mark("", ""), b"")
        session = Session(client, a_job, Limits(), origin, lambda _: None)
        assert not session.lost
    with pytest.raises(DaskprsError, match="the cluster has gone"):
        _ = session.lost


def test_two_jobs_at_a_time_leave_the_settings_of_dask_as_they_were() -> None:
    """The one that began first ends first, in a thread of its own."""
    before = {name: dask.config.get(name) for name in QUIET}
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(connected(None, 1))
        second.enter_context(connected(None, 1))
        first.close()
        assert {name: dask.config.get(name) for name in QUIET} == QUIET
    assert {name: dask.config.get(name) for name in QUIET} == before
