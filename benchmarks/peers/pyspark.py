"""Spark on one machine: `mapInPandas`, `applyInPandas`, one file put together at the end."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession, functions

from benchmarks.job import Job, gather, play, write_all
from benchmarks.slices import csv_text, lines_text, paths
from benchmarks.work import GROUPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas as pd

ROW_BYTES_ON_DISK = 100
SCORES = "id long, score double"
FITS = "key long, rows long, a double, b double, c double"
GLANCES = "first long, rows long, total double"
FEATURES = ", ".join(f"x{number} double" for number in range(7))


def start(job: Job, mini_batch_rows: int = 10_000) -> SparkSession:
    """Return a session with as many threads as there may be processes."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "8g",
        "spark.local.dir": str(Path(job.output).parent),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(mini_batch_rows),
        "spark.sql.ansi.enabled": "false",
    }
    builder: Any = SparkSession.builder.master(f"local[{job.processes}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def each(run: Callable[[pd.DataFrame], pd.DataFrame]) -> Callable[[Any], Any]:
    """Return what Spark calls with the frames of a partition."""

    def work(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        return map(run, frames)

    return work


def files(job: Job) -> None:
    """Work on lists of paths, a partition for each."""
    run, every = job.function(), paths(job.input, job.size)
    made = start(job).sparkContext.parallelize(every, len(every)).map(run).collect()
    write_all(job, map(lines_text, made))


def table(job: Job) -> None:
    """Read, map, and write; then put the files together."""
    session = start(job, max(1, job.size // ROW_BYTES_ON_DISK))
    parts = Path(f"{job.output}.parts")
    _mapped(job, session).write.csv(str(parts))
    gather(job, sorted(parts.glob("part-*")))


def dataset(job: Job) -> None:
    """Read, map, and write."""
    session = start(job, max(1, job.size // ROW_BYTES_ON_DISK))
    with job.timed_on_cluster():
        _mapped(job, session).write.parquet(job.output)


def groups(job: Job) -> None:
    """Read, map, and sum by group."""
    session = start(job, max(1, job.size // ROW_BYTES_ON_DISK))
    with job.timed_on_cluster():
        group = (functions.col("id") % GROUPS).alias("group")
        totals = _mapped(job, session).groupBy(group).agg(functions.sum("score"))
        write_all(job, [csv_text(totals.toPandas())])


def _mapped(job: Job, session: SparkSession) -> Any:
    if Path(job.input).is_file():
        source = session.read.parquet(job.input)
    else:
        source = session.read.csv(job.input, header=True, schema=f"id long, {FEATURES}")
    return source.mapInPandas(each(job.function()), SCORES)


def keys(job: Job) -> None:
    """Group by key, and apply."""
    run = job.function()
    session = start(job)
    with job.timed_on_cluster():
        groups = session.read.parquet(job.input).groupBy("key")
        write_all(job, [csv_text(groups.applyInPandas(run, FITS).toPandas())])


def frame(job: Job) -> None:
    """Hand the frame over, and map it."""
    from benchmarks.frames import ROW_BYTES, make_frame

    run = job.function()
    whole = make_frame(int(job.input))
    with job.timed():
        session = start(job, job.size // ROW_BYTES)
        made = session.createDataFrame(whole).mapInPandas(each(run), GLANCES).toPandas()
        write_all(job, [csv_text(made)])


def lazy_frame(job: Job) -> None:
    """Map the frames that a first map has computed."""
    from benchmarks.lazy_frames import PARTITION_ROWS, LazyFrame, partition

    run = job.function()
    given = LazyFrame.of(job)

    def made(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for numbers in frames:
            for number in numbers["id"]:
                yield partition(number, given.busy_s, given.waiting_s)

    session = start(job, PARTITION_ROWS)
    with job.timed():
        numbers = session.range(given.count, numPartitions=given.count)
        lazy = numbers.mapInPandas(made, f"id long, {FEATURES}")
        write_all(job, [csv_text(lazy.mapInPandas(each(run), GLANCES).toPandas())])


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
