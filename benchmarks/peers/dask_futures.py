"""Dask futures, tuned by hand: few tasks of many mini-batches, text as the results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distributed import Client

from benchmarks.job import Job, play, write_all
from benchmarks.slices import (
    Piece,
    csv_text,
    grouped,
    lines_text,
    paths,
    pieces,
    row_ranges,
    worked,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TASKS_OF_A_PROCESS = 16


def futures(job: Job, work: Callable[[Any, Any], bytes], tasks: Sequence[Any]) -> None:
    """Have a cluster do the tasks, and write what it returns, in order."""
    run = job.function()
    with Client(
        n_workers=job.processes, threads_per_worker=1, dashboard_address="127.0.0.1:0"
    ) as client:
        pending = client.map(work, tasks, run=run, pure=False)
        write_all(job, (future.result() for future in pending))


def lines(some: list[list[str]], run: Callable[[list[str]], list[str]]) -> bytes:
    """Return what `run` makes of some mini-batches of paths."""
    return b"".join(lines_text(run(mini_batch)) for mini_batch in some)


def slices(some: list[Piece], run: Callable[[Any], Any]) -> bytes:
    """Return what `run` makes of some slices."""
    return b"".join(worked(run, piece) for piece in some)


def rows(mini_batch: Any, run: Callable[[Any], Any]) -> bytes:
    """Return what `run` makes of a frame."""
    return csv_text(run(mini_batch))


def files(job: Job) -> None:
    """Work on many lists of paths at a time."""
    futures(job, lines, _some(job, paths(job.input, job.size)))


def table(job: Job) -> None:
    """Work on a row group at a time, or on some ranges of CSV."""
    groups = grouped(pieces(job.input, job.size))
    if len(groups[0]) == 1:
        groups = _some(job, [group[0] for group in groups])
    futures(job, slices, groups)


def frame(job: Job) -> None:
    """Send slices of the frame."""
    from benchmarks.frames import ROW_BYTES, make_frame

    whole = make_frame(int(job.input))
    with job.timed():
        ranges = row_ranges(len(whole), ROW_BYTES, job.size)
        futures(job, rows, [whole.iloc[slice(*some)] for some in ranges])


def _some(job: Job, tasks: list[Any]) -> list[list[Any]]:
    """Return tasks in as many bundles as keep all processes busy to the end."""
    step = max(1, len(tasks) // (job.processes * TASKS_OF_A_PROCESS))
    return [tasks[first : first + step] for first in range(0, len(tasks), step)]


if __name__ == "__main__":
    play(files=files, table=table, frame=frame)
