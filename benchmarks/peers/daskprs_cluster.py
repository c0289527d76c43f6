"""The library on a cluster of worker processes, its start and end included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distributed import Client

from benchmarks.job import play
from benchmarks.peers.daskprs import run_job

if TYPE_CHECKING:
    from benchmarks.job import Job


def sized(job: Job) -> None:
    """Work on files or a table, in as many workers as there are processes."""
    settings: dict[str, Any] = {"threads_per_worker": 1, "dashboard_address": None}
    with Client(n_workers=job.processes, **settings) as client:
        run_job(job, job.input, job.function(), mini_batch_size=job.size, client=client)


if __name__ == "__main__":
    play(files=sized, table=sized)
