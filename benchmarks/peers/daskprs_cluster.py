"""The library on a cluster of worker processes, its start and end included."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.dask_cluster import cluster, lazy_frame
from benchmarks.job import play
from benchmarks.peers.daskprs import run_job

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


if __name__ == "__main__":
    play(files=sized, table=sized, keys=keys, cluster_frame=frame)
