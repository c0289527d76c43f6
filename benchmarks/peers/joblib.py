"""joblib with its processes, results in order as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from joblib import Parallel, delayed

from benchmarks.job import Job, play, write_all
from benchmarks.slices import csv_text, grouped, lines_text, paths, pieces, row_ranges, worked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def parallel(
    job: Job,
    work: Callable[[Any, Any], bytes],
    tasks: Iterable[Any],
    batch_size: int | Literal["auto"] = "auto",
) -> None:
    """Have processes do the tasks, and write what they return."""
    run = job.function()
    workers = Parallel(n_jobs=job.processes, return_as="generator", batch_size=batch_size)
    write_all(job, workers(delayed(work)(run, task) for task in tasks))


def lines(run: Callable[[list[str]], list[str]], some: list[str]) -> bytes:
    """Return what `run` makes of some paths."""
    return lines_text(run(some))


def rows(run: Callable[[Any], Any], mini_batch: Any) -> bytes:
    """Return what `run` makes of a frame."""
    return csv_text(run(mini_batch))


def files(job: Job) -> None:
    """Work on lists of paths."""
    parallel(job, lines, paths(job.input, job.size))


def table(job: Job) -> None:
    """Work on slices; a batch is about a row group, or what joblib finds good."""
    every = pieces(job.input, job.size)
    of_group = len(grouped(every)[0])
    parallel(job, worked, every, of_group if of_group > 1 else "auto")


def keys(job: Job) -> None:
    """Sort the table in memory, then send the rows of each key."""
    from benchmarks.sorted_keys import by_key

    parallel(job, rows, by_key(job.input))


def frame(job: Job) -> None:
    """Send slices of the frame."""
    from benchmarks.frames import ROW_BYTES, make_frame

    whole = make_frame(int(job.input))
    with job.timed():
        ranges = row_ranges(len(whole), ROW_BYTES, job.size)
        parallel(job, rows, (whole.iloc[slice(*some)] for some in ranges))


if __name__ == "__main__":
    play(files=files, table=table, keys=keys, frame=frame)
