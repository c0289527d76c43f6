"""Daft: a lazy frame, batch functions, one file put together at the end."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import daft
import pandas as pd
import pyarrow as pa
from daft import DataType
from daft.io._generator import read_generator
from daft.recordbatch import RecordBatch

from benchmarks.job import Job, gather, play, write_all
from benchmarks.slices import csv_text, lines_text, paths
from benchmarks.work import FEATURES, FIT_COLUMNS, GLANCE_COLUMNS, GROUPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROW_BYTES_ON_DISK = 100


def batch(
    run: Callable[[pd.DataFrame], pd.DataFrame],
    names: tuple[str, ...],
    made: dict[str, Any],
    rows: int,
) -> Any:
    """Return `run` as a function of columns, called in processes with so many rows at a time."""

    def work(*columns: daft.Series) -> pa.Array:
        arrays = {name: one.to_arrow() for name, one in zip(names, columns, strict=True)}
        made = _structs(run(pa.table(arrays).to_pandas()))
        missing = pa.nulls(len(columns[0]) - len(made), made.type)  # as many rows as came in
        return pa.concat_arrays([made, missing])

    called: Any = daft.func.batch(
        return_dtype=DataType.struct(made), unnest=True, batch_size=rows, use_process=True
    )
    return called(work)(*map(daft.col, names))


def files(job: Job) -> None:
    """Work on lists of paths, each one a row."""
    run = job.function()

    def work(groups: daft.Series) -> list[str]:
        return [lines_text(run(some)).decode() for some in groups.to_pylist()]

    source = daft.from_pydict({"paths": paths(job.input, job.size)})
    called: Any = daft.func.batch(return_dtype=DataType.string(), batch_size=1, use_process=True)
    texts = source.select(called(work)(daft.col("paths")).alias("text")).to_pydict()["text"]
    write_all(job, (text.encode() for text in texts))


def table(job: Job) -> None:
    """Read, map, and write; then put the files together."""
    parts = Path(f"{job.output}.parts")
    _scored(job).write_csv(str(parts), header=False)
    gather(job, sorted(parts.iterdir()))


def dataset(job: Job) -> None:
    """Read, map, and write."""
    with job.timed_on_cluster():
        _scored(job).write_parquet(job.output)


def groups(job: Job) -> None:
    """Read, map, and sum by group."""
    with job.timed_on_cluster():
        grouped = _scored(job).groupby((daft.col("id") % GROUPS).alias("group"))
        write_all(job, [csv_text(grouped.agg(daft.col("score").sum()).to_pandas())])


def _scored(job: Job) -> Any:
    whole = Path(job.input).is_file()
    names = ("id", "key", *FEATURES) if whole else ("id", *FEATURES)
    source = daft.read_parquet(job.input) if whole else daft.read_csv(f"{job.input}/*.csv")
    made = {"id": DataType.int64(), "score": DataType.float64()}
    return source.select(batch(job.function(), names, made, job.size // ROW_BYTES_ON_DISK))


def keys(job: Job) -> None:
    """Group by key, with the columns as lists, and map the groups."""
    names = ("x0", "x1", "x2", "y")
    run = job.function()
    made = dict(zip(FIT_COLUMNS, 2 * [DataType.int64()] + 3 * [DataType.float64()], strict=True))

    def work(key: daft.Series, *columns: daft.Series) -> pa.Array:
        groups = zip(key.to_pylist(), *(one.to_arrow() for one in columns), strict=True)
        fits = [run(_group(key, names, lists)) for key, *lists in groups]
        return _structs(pd.concat(fits))

    with job.timed_on_cluster():
        lists = (
            daft.read_parquet(job.input)
            .groupby("key")
            .agg(*(daft.col(name).list_agg() for name in names))
        )
        called: Any = daft.func.batch(
            return_dtype=DataType.struct(made), unnest=True, use_process=True
        )
        fits = lists.select(called(work)(daft.col("key"), *map(daft.col, names)))
        write_all(job, [csv_text(fits.to_pandas())])


def frame(job: Job) -> None:
    """Hand the frame over, and map its batches."""
    from benchmarks.frames import ROW_BYTES, make_frame

    whole = make_frame(int(job.input))
    made = dict(zip(GLANCE_COLUMNS, 2 * [DataType.int64()] + [DataType.float64()], strict=True))
    with job.timed():
        work = batch(job.function(), ("id", *FEATURES), made, job.size // ROW_BYTES)
        write_all(job, [csv_text(daft.from_pandas(whole).select(work).to_pandas().dropna())])


def lazy_frame(job: Job) -> None:
    """Map the batches of a source that computes each partition when it reads it."""
    from benchmarks.lazy_frames import PARTITION_ROWS, LazyFrame, empty_partition, partition

    given = LazyFrame.of(job)

    def computed(number: int) -> Iterator[Any]:
        rows = partition(number, given.busy_s, given.waiting_s)
        yield RecordBatch.from_pandas(rows)

    made = dict(zip(GLANCE_COLUMNS, 2 * [DataType.int64()] + [DataType.float64()], strict=True))
    with job.timed():
        parts = (partial(computed, number) for number in range(given.count))
        lazy = read_generator(parts, daft.from_pandas(empty_partition()).schema())
        work = batch(job.function(), ("id", *FEATURES), made, PARTITION_ROWS)
        write_all(job, [csv_text(lazy.select(work).to_pandas().dropna())])


def _group(key: int, names: tuple[str, ...], lists: list[Any]) -> pd.DataFrame:
    columns = {name: one.values.to_numpy() for name, one in zip(names, lists, strict=True)}
    return pd.DataFrame({"key": key, **columns})


def _structs(frame: pd.DataFrame) -> pa.Array:
    table = pa.Table.from_pandas(frame, preserve_index=False).combine_chunks()
    return table.to_struct_array().combine_chunks()


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
