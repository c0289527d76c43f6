"""Dask as its documentation teaches it: collections, `map_partitions`, one file at the end."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask
import dask.dataframe as dd
import pandas as pd

from benchmarks import dask_cluster
from benchmarks.dask_cluster import cluster
from benchmarks.job import Job, play, write_all
from benchmarks.lazy_frames import empty_result
from benchmarks.slices import csv_text, lines_text, paths, row_ranges
from benchmarks.work import FIT_COLUMNS, GROUPS

if TYPE_CHECKING:
    from collections.abc import Callable

ROW_BYTES_ON_DISK = 100


def by_mini_batch(
    partition: pd.DataFrame, run: Callable[[pd.DataFrame], pd.DataFrame], rows: int
) -> pd.DataFrame:
    """Return what `run` makes of a partition, a mini-batch at a time."""
    ranges = row_ranges(len(partition), 1, rows)
    parts = [run(partition.iloc[slice(*some)]) for some in ranges]
    return pd.concat(parts) if parts else run(partition)


def files(job: Job) -> None:
    """Work on lists of paths, a delayed call for each."""
    run = job.function()
    with cluster(job):
        calls = [dask.delayed(run)(some) for some in paths(job.input, job.size)]
        write_all(job, (lines_text(lines) for lines in dask.compute(*calls)))


def table(job: Job) -> None:
    """Work on partitions: row groups of Parquet, ranges of CSV files."""
    with cluster(job):
        made = _mapped(job)
        names = made.to_csv(f"{job.output}.parts/*", index=False, header=False)
        with Path(job.output).open("wb") as output:
            for name in names:
                with Path(name).open("rb") as part:
                    shutil.copyfileobj(part, output)


def dataset(job: Job) -> None:
    """Work on partitions, each of which is a file."""
    with cluster(job), job.timed_on_cluster():
        _mapped(job).to_parquet(job.output, write_index=False)


def groups(job: Job) -> None:
    """Work on partitions, and sum by group."""
    with cluster(job), job.timed_on_cluster():
        made = _mapped(job)
        totals = made["score"].groupby(made["id"] % GROUPS).sum().compute()
        write_all(job, [csv_text(totals.reset_index())])


def _mapped(job: Job) -> Any:
    run = job.function()
    rows = max(1, job.size // ROW_BYTES_ON_DISK)
    if Path(job.input).is_file():
        source = dd.read_parquet(job.input, split_row_groups=True)
    else:
        source = dd.read_csv(f"{job.input}/*.csv", blocksize=job.size)
    return source.map_partitions(by_mini_batch, run, rows, meta=_meta(run))


def keys(job: Job) -> None:
    """Group by key, and apply."""
    run = job.function()
    meta = {"key": int, "rows": int, **dict.fromkeys(FIT_COLUMNS[2:], float)}
    with cluster(job), job.timed_on_cluster():
        groups = dd.read_parquet(job.input, split_row_groups=True).groupby("key")
        fits = groups[["key", "x0", "x1", "x2", "y"]].apply(run, meta=meta).compute()
        write_all(job, [csv_text(fits)])


def frame(job: Job) -> None:
    """Cut the frame into partitions, and compute."""
    from benchmarks.frames import ROW_BYTES, make_frame

    run = job.function()
    whole = make_frame(int(job.input))
    count = len(row_ranges(len(whole), ROW_BYTES, job.size))
    with job.timed(), cluster(job):
        partitions = dd.from_pandas(whole, npartitions=count, sort=False)
        made = partitions.map_partitions(run, meta=_meta(run)).compute()
        write_all(job, [csv_text(made)])


def lazy_frame(job: Job) -> None:
    """Map the partitions of a lazy frame."""
    with cluster(job), job.timed():
        made = dask_cluster.lazy_frame(job).map_partitions(job.function(), meta=empty_result())
        write_all(job, [csv_text(made.compute())])


def _meta(run: Callable[[Any], pd.DataFrame]) -> pd.DataFrame:
    """Return an empty frame like those that `run` returns."""
    names = ["id", *(f"x{number}" for number in range(7))]
    return run(pd.DataFrame({name: [0.0] for name in names}).astype({"id": int})).iloc[:0]


if __name__ == "__main__":
    play(
        files=files,
        table=table,
        keys=keys,
        frame=frame,
        cluster_frame=lazy_frame,
        cluster_dataset=dataset,
        cluster_groups=groups,
    )
