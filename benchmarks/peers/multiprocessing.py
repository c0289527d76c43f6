"""The standard library's pool, with `imap`: results come in order."""

from __future__ import annotations

import importlib
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

from benchmarks.job import Job, play, write_all
from benchmarks.slices import csv_text, grouped, lines_text, paths, pieces, row_ranges, worked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def pool(job: Job, work: Callable[[Any], bytes], tasks: Iterable[Any], chunksize: int = 1) -> None:
    """Have a pool do the tasks, and write what it returns."""
    with get_context("fork").Pool(job.processes) as workers:
        write_all(job, workers.imap(work, tasks, chunksize))


def lines(run: Callable[[list[str]], list[str]], some: list[str]) -> bytes:
    """Return what `run` makes of some paths."""
    return lines_text(run(some))


def rows(run: Callable[[Any], Any], mini_batch: Any) -> bytes:
    """Return what `run` makes of a frame."""
    return csv_text(run(mini_batch))


def files(job: Job) -> None:
    """Work on lists of paths."""
    pool(job, partial(lines, job.function()), paths(job.input, job.size))


def table(job: Job) -> None:
    """Work on slices; a chunk is about a row group."""
    importlib.import_module("pandas")  # once, before the fork
    every = pieces(job.input, job.size)
    chunksize = len(grouped(every)[0])
    pool(job, partial(worked, job.function()), every, chunksize)


def keys(job: Job) -> None:
    """Sort the table in memory, then send the rows of each key."""
    from benchmarks.sorted_keys import by_key

    pool(job, partial(rows, job.function()), by_key(job.input))


def frame(job: Job) -> None:
    """Send slices of the frame."""
    from benchmarks.frames import ROW_BYTES, make_frame

    whole = make_frame(int(job.input))
    with job.timed():
        ranges = row_ranges(len(whole), ROW_BYTES, job.size)
        pool(job, partial(rows, job.function()), (whole.iloc[slice(*some)] for some in ranges))


if __name__ == "__main__":
    play(files=files, table=table, keys=keys, frame=frame)
