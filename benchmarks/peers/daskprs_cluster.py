"""The library on a cluster of worker processes, its start and end included."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import daskprs
from benchmarks.dask_cluster import cluster, lazy_frame
from benchmarks.job import play, write_all
from benchmarks.peers.daskprs import run_job
from benchmarks.slices import csv_text
from benchmarks.work import GROUPS

if TYPE_CHECKING:
    from benchmarks.job import Job


def sized(job: Job) -> None:
    """Work on files or a table, in as many workers as there are processes."""
    with cluster(job) as client:
        run_job(job, job.input, job.function(), mini_batch_size=job.size, client=client)


def keys(job: Job) -> None:
    """Work on the rows of each key."""
    with cluster(job) as client, job.timed_on_cluster():
        run_job(job, job.input, job.function(), partition_keys="key", client=client)


def frame(job: Job) -> None:
    """Work on the partitions of a lazy frame."""
    with cluster(job) as client, job.timed():
        run_job(job, lazy_frame(job), job.function(), client=client)


def dataset(job: Job) -> None:
    """Work on a table, into a data set."""
    output = Path(job.output)
    with cluster(job) as client, job.timed_on_cluster():
        daskprs.parallel_run(
            job.input,
            job.function(),
            mini_batch_size=job.size,
            output_dir=output.parent,
            append_row_file_name=output.name,
            output_format="parquet",
            job_dir=output.parent / "job",
            client=client,
        )


def groups(job: Job) -> None:
    """Work on partitions within Dask's own graph, and sum by group."""
    import dask.dataframe as dd

    with cluster(job), job.timed_on_cluster():
        made = daskprs.map_batches(
            dd.read_parquet(job.input, split_row_groups=True),
            job.function(),
            schema={"id": "int64", "score": "float64"},
            committed=False,
        )
        totals = made["score"].groupby(made["id"] % GROUPS).sum().compute()
        write_all(job, [csv_text(totals.reset_index())])


if __name__ == "__main__":
    play(
        files=sized,
        table=sized,
        keys=keys,
        cluster_frame=frame,
        cluster_dataset=dataset,
        cluster_groups=groups,
    )
