"""The figures of a job for Prometheus: their names, their labels and their help texts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs._core.events import ProgressReported
    from daskprs._core.spending import Amounts


class JobFigures(NamedTuple):
    """The figures of a job at one time."""

    job: str
    """The name of the job folder."""
    job_dir: str
    """Its path, since job folders in several places may have one name."""
    unit: str
    mini_batches: dict[str, int]
    """By state."""
    items: dict[str, int]
    slots: dict[str, int]
    """By what they do."""
    planned: int | None
    elapsed_s: float
    since_settled_s: float
    usage: dict[str, Amounts]
    """What was spent, and what of it was useful."""


class Sample(NamedTuple):
    """One value of a metric."""

    name: str
    help: str
    value: float
    labels: dict[str, str]


def figures_of(event: ProgressReported, job_dir: str, unit: str) -> JobFigures:
    """Return the figures of a job from its progress."""
    standing = event.standing
    _, succeeded, failed = standing.mini_batches
    _, items_succeeded, items_failed = standing.items
    return JobFigures(
        Path(job_dir).name,
        job_dir,
        unit,
        {
            "succeeded": succeeded,
            "failed": failed,
            "running": standing.running,
            "waiting": standing.waiting,
        },
        {"succeeded": items_succeeded, "failed": items_failed},
        dict(Counter(slot.phase for slot in event.slots)),
        standing.planned,
        event.elapsed_s,
        event.since_progress_s,
        {"spent": standing.spent, "useful": standing.useful},
    )


def sample(job_dir: str, name: str, help_: str, value: float, **more: str) -> Sample:
    """Return a value of a metric of a job."""
    labels = {"job": Path(job_dir).name, "job_dir": job_dir, **more}
    return Sample(f"daskprs_job_{name}", help_, value, labels)


def samples(of: JobFigures) -> Iterator[Sample]:
    """Yield the values of all metrics of a job, one metric after the other."""
    job_dir = of.job_dir
    for state, count in of.mini_batches.items():
        yield sample(job_dir, "mini_batches", "Mini-batches, by state", count, state=state)
    for state, count in of.items.items():
        yield sample(job_dir, "items", "Rows or files", count, state=state, unit=of.unit)
    for phase, count in of.slots.items():
        yield sample(job_dir, "slots", "Slots, by what they do", count, phase=phase)
    if of.planned is not None:
        yield sample(job_dir, "mini_batches_planned", "Mini-batches of the plan", of.planned)
    yield sample(job_dir, "elapsed_seconds", "Time since the work began", of.elapsed_s)
    since_s = of.since_settled_s
    yield sample(job_dir, "since_settled_seconds", "Time since a mini-batch was settled", since_s)
    for kind, amounts in of.usage.items():
        for name, amount in amounts:
            yield sample(job_dir, "usage", "What the script counts", amount, kind=kind, what=name)
