"""mpire's pool of forked workers, results in order."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mpire import WorkerPool

from benchmarks.job import Job, play, write_all
from benchmarks.slices import csv_text, grouped, lines_text, paths, pieces, row_ranges, worked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


def pool(
    job: Job, work: Callable[[Any], bytes], tasks: Iterable[Any], count: int, chunk_size: int = 1
) -> None:
    """Have a pool do the tasks, and write what it returns."""
    with WorkerPool(n_jobs=job.processes, start_method="fork") as workers:
        texts = workers.imap(work, _alone(tasks), iterable_len=count, chunk_size=chunk_size)
        write_all(job, texts)


def _alone(tasks: Iterable[Any]) -> Iterator[tuple[Any]]:
    """Yield each task as the one argument: mpire would unpack it."""
    return ((task,) for task in tasks)


def files(job: Job) -> None:
    """Work on lists of paths."""
    run, every = job.function(), paths(job.input, job.size)

    def work(some: list[str]) -> bytes:
        return lines_text(run(some))

    pool(job, work, every, len(every))


def table(job: Job) -> None:
    """Work on slices; a chunk is about a row group."""
    importlib.import_module("pandas")  # once, before the fork
    run, every = job.function(), pieces(job.input, job.size)

    def work(piece: Any) -> bytes:
        return worked(run, piece)

    pool(job, work, every, len(every), len(grouped(every)[0]))


def keys(job: Job) -> None:
    """Sort the table in memory, then send the rows of each key."""
    from benchmarks.sorted_keys import sorted_by_key

    whole, bounds = sorted_by_key(job.input)
    pool(job, _rows(job), (whole.iloc[slice(*some)] for some in bounds), len(bounds))


def frame(job: Job) -> None:
    """Send slices of the frame."""
    from benchmarks.frames import ROW_BYTES, make_frame

    whole = make_frame(int(job.input))
    with job.timed():
        ranges = row_ranges(len(whole), ROW_BYTES, job.size)
        pool(job, _rows(job), (whole.iloc[slice(*some)] for some in ranges), len(ranges))


def _rows(job: Job) -> Callable[[Any], bytes]:
    run = job.function()

    def work(mini_batch: Any) -> bytes:
        return csv_text(run(mini_batch))

    return work


if __name__ == "__main__":
    play(files=files, table=table, keys=keys, frame=frame)
