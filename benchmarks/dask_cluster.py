"""A cluster of processes on this machine and a lazy frame: the same for dask and daskprs."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distributed import Client, Nanny, Scheduler, SpecCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.job import Job

HOST = "127.0.0.1"


@contextmanager
def cluster(job: Job) -> Iterator[Client]:
    """Yield the client of workers with one thread each, and each with its own local directory."""
    folder = Path(job.output).parent
    options = {"nthreads": 1, "host": HOST, "memory_limit": 1 / job.processes}
    workers = {
        number: {"cls": Nanny, "options": {**options, "local_directory": folder / f"node{number}"}}
        for number in range(job.processes)
    }
    scheduler = {"cls": Scheduler, "options": {"host": HOST, "dashboard": False}}
    with SpecCluster(workers, scheduler) as nodes, Client(nodes) as client:
        client.wait_for_workers(job.processes)
        yield client


def lazy_frame(job: Job) -> Any:
    """Return the lazy frame of a job as a dask DataFrame."""
    import dask.dataframe as dd

    from benchmarks.lazy_frames import LazyFrame, empty_partition, partition

    given = LazyFrame.of(job)
    seconds = {"busy_s": given.busy_s, "waiting_s": given.waiting_s}
    return dd.from_map(partition, range(given.count), meta=empty_partition(), **seconds)
