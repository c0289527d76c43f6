"""Forty hand-written lines: forked processes, and a counter that says which is next.

It does exactly the work, so that nothing is faster by much. It is no library: if anything fails,
everything is lost, and the output is in no order.
"""

from __future__ import annotations

import importlib
import os
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

from benchmarks.job import Job, play
from benchmarks.slices import csv_text, grouped, lines_text, load, paths, pieces, row_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pandas as pd


def fork(job: Job, tasks: Sequence[Any], work: Callable[[Any], Iterable[bytes]]) -> None:
    """Have processes take task after task and append what they make of it."""
    context = get_context("fork")
    next_task = context.Value("q", 0)
    output = os.open(job.output, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def take() -> None:
        while True:
            with next_task.get_lock():
                number = next_task.value
                next_task.value += 1
            if number >= len(tasks):
                return
            for text in work(tasks[number]):
                os.write(output, text)

    processes = [context.Process(target=take) for _ in range(job.processes)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


def files(job: Job) -> None:
    """Work on lists of paths."""
    run = job.function()
    fork(job, paths(job.input, job.size), lambda some: [lines_text(run(some))])


def table(job: Job) -> None:
    """Work on slices; those of a row group go to one process."""
    importlib.import_module("pandas")  # once, before the fork
    run = job.function()
    tasks = grouped(pieces(job.input, job.size))
    fork(job, tasks, lambda some: (csv_text(run(load(piece))) for piece in some))


def keys(job: Job) -> None:
    """Sort the table in memory, then work on the rows of each key."""
    from benchmarks.sorted_keys import sorted_by_key

    run = job.function()
    rows, bounds = sorted_by_key(job.input)
    fork(job, bounds, lambda some: [csv_text(run(rows.iloc[slice(*some)]))])


def frame(job: Job) -> None:
    """Work on slices of a frame that the fork has made everyone's."""
    from benchmarks.frames import make_frame

    run = job.function()
    rows = make_frame(int(job.input))

    def work(some: tuple[int, int]) -> list[bytes]:
        mini_batch: pd.DataFrame = rows.iloc[slice(*some)]
        return [csv_text(run(mini_batch))]

    with job.timed():
        row_bytes = rows.memory_usage(index=False).sum() / len(rows)
        fork(job, row_ranges(len(rows), row_bytes, job.size), work)


if __name__ == "__main__":
    play(files=files, table=table, keys=keys, frame=frame)
