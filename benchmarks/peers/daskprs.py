"""The library at hand, as its user would write it: frames are formatted by it, output in order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import daskprs
from benchmarks import faulty
from benchmarks.job import Job, play


def run_job(job: Job, data: Any, script: Any, **options: Any) -> None:
    """Run one job with its output in one CSV file."""
    output = Path(job.output)
    daskprs.parallel_run(
        data,
        script,
        job_dir=output.parent / "job",
        output_dir=output.parent,
        append_row_file_name=output.name,
        append_row_dataframe_sep=",",
        process_count_per_node=job.processes,
        **options,
    )


def sized(job: Job) -> None:
    """Work on files or a table."""
    run_job(job, job.input, job.function(), mini_batch_size=job.size)


def keys(job: Job) -> None:
    """Work on the rows of each key."""
    run_job(job, job.input, job.function(), partition_keys="key")


def frame(job: Job) -> None:
    """Work on a frame of the caller."""
    from benchmarks.frames import make_frame

    rows = make_frame(int(job.input))
    with job.timed():
        run_job(job, rows, job.function(), mini_batch_size=job.size)


def faults(job: Job) -> None:
    """Lose only what fails, and let go of what hangs for five seconds."""
    run_job(
        job,
        job.input,
        faulty.__file__,
        mini_batch_size=job.size,
        run_invocation_timeout=faulty.TIMEOUT_S,
        run_max_try=1,
        allowed_failed_count=-1,
    )


if __name__ == "__main__":
    play(files=sized, table=sized, keys=keys, frame=frame, faults=faults)
