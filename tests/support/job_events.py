"""Events for tests: short calls for what matters, defaults for the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from daskprs._core.columnar import ColumnBatch
from daskprs._core.ending import Ending, JobStatus
from daskprs._core.events import (
    AttemptFailed,
    Counts,
    JobEnded,
    JobStarted,
    MiniBatchesDone,
    Place,
    Progress,
    ProgressReported,
    SlotState,
)
from daskprs._core.mini_batch import MiniBatch
from daskprs._core.outcomes import Failure, Outcome, Status
from daskprs._job.frontend import Surface

HERE = Place(0, "process000", "host", 41)
STARTED = 1_800_000_000.25


def attempt(
    index: int = 0,
    failure: Failure | None = None,
    *,
    final: bool | None = None,
    place: Place = HERE,
    **more: Any,
) -> AttemptFailed | MiniBatchesDone:
    """Return the end of an attempt: a success, or a failure that is not the last one."""
    label = more.pop("label", f"rows {index}-{index + 1}")
    key = more.pop("partition_key", ())
    outcome = Outcome(
        index=index,
        attempt=more.pop("attempt", 1),
        status=more.pop("status", Status.RUN_EXCEPTION if failure else Status.RUN_DONE),
        total=2,
        succeeded=0 if failure else 2,
        started=STARTED,
        elapsed_s=0.5,
        run_s=0.25,
        cpu_s=0.125,
        peak_bytes=more.pop("peak_bytes", 300 << 20),
        failure=failure,
    )
    charged = bool(more.pop("charged", True))
    assert not more
    mini_batch = MiniBatch(index, None, "", label=label, partition_key=key)
    if failure is None:
        return MiniBatchesDone(place, [mini_batch], ColumnBatch([outcome]))
    return AttemptFailed(place, mini_batch, outcome, bool(final), charged)


def standing(done: int = 0, total: int = 10, *, failed: int = 0, **more: Any) -> Progress:
    """Return how far a job is whose plan is known."""
    counts = Counts(total, done, failed)
    given = {"plan_complete": True, "expected": total, "running": 0, "waiting": 0, "recovered": 0}
    return Progress(counts, counts, **(given | more))


def stood(
    done: int = 0,
    total: int = 10,
    *,
    elapsed_s: float = 1.0,
    quiet_s: float = 0.0,
    slots: tuple[SlotState, ...] = (),
    **more: Any,
) -> ProgressReported:
    """Return a look at a job."""
    return ProgressReported(standing(done, total, **more), slots, elapsed_s, quiet_s)


def slot(phase: str, since_s: float = 1.0, index: int | None = None, process: int = 0) -> SlotState:
    """Return what a slot is doing."""
    return SlotState(Place(0, f"process{process:03d}", "host", 1), phase, since_s, index)


def job_started(**more: Any) -> JobStarted:
    """Return the start of a job."""
    given = {"expected": None, "resumed": False, "options": {}}
    return JobStarted("1a2b", "score.py", "row", STARTED, **(given | more))


def job_ended(
    status: JobStatus = JobStatus.COMPLETED,
    reason: str = "",
    failure: Failure | None = None,
    **more: Any,
) -> JobEnded:
    """Return the end of a job."""
    output = more.pop("output", "")
    resume = Surface().resume
    ending = Ending(status, reason, failure)
    ways = resume(Path("/job")), resume(Path("/job"), ending.to_mend) if failure else ""
    why = Surface().report(Path("/job"))
    return JobEnded(ending, standing(10, **more), 12.0, output, *ways, why)
