"""Jobs and workers that need not run, and clusters of real processes that do."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest

from daskprs._agent.protocol.messages import JobSpec, ScriptSpec
from daskprs._cluster.worker_events import Heartbeat
from daskprs._core.limits import Limits
from daskprs._output.spec import OutputSpec

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def a_job() -> JobSpec:
    """Return what agents are told, of a job that has none."""
    return JobSpec(
        job_id="00000000",
        script=ScriptSpec("nothing"),
        arguments=(),
        environment={},
        reader=pickle.dumps(None),
        unit="row",
        output=OutputSpec(text=False, typed=False, header=False, separator=" "),
        job_dir="/nowhere",
        epoch=1,
        boot_id="",
        output_dir="/nowhere",
        logging_level="INFO",
        start_method="fork",
        limits=Limits(),
    )


@pytest.fixture
def a_worker() -> Callable[..., Heartbeat]:
    """Make workers of two threads each, as they tell of themselves."""

    def make(name: str, host: str = "one", **change: Any) -> Heartbeat:
        return Heartbeat(name, f"life of {name}", host, 2, 8, 0.0, (), {})._replace(**change)

    return make
