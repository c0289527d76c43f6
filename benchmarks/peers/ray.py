"""Ray Data: a dataset, `map_batches`, results iterated in the driver."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray

from benchmarks.job import Job, gather, play, write_all
from benchmarks.slices import csv_text, lines_text, paths
from benchmarks.work import GROUPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas as pd

ROW_BYTES_ON_DISK = 100


def start(job: Job) -> None:
    """Start Ray with as many processors as there may be processes."""
    ray.init(num_cpus=job.processes, include_dashboard=False, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False


def files(job: Job) -> None:
    """Work on lists of paths, each one an item."""
    run = job.function()

    def lines(item: dict[str, Any]) -> dict[str, str]:
        return {"text": lines_text(run(list(item["paths"]))).decode()}

    start(job)
    items = [{"paths": some} for some in paths(job.input, job.size)]
    texts = ray.data.from_items(items).map(lines).iter_rows()
    write_all(job, (row["text"].encode() for row in texts))


def table(job: Job) -> None:
    """Read, map, and write; then put the files together."""
    start(job)
    parts = Path(f"{job.output}.parts")
    _mapped(job).write_csv(str(parts), arrow_csv_args_fn=_no_header)
    gather(job, sorted(parts.iterdir()))


def dataset(job: Job) -> None:
    """Read, map, and write."""
    start(job)
    with job.timed_on_cluster():
        _mapped(job).write_parquet(job.output)


def groups(job: Job) -> None:
    """Read, map, and sum by group."""

    def numbered(rows: pd.DataFrame) -> pd.DataFrame:
        return rows.assign(group=rows["id"].to_numpy() % GROUPS)

    start(job)
    with job.timed_on_cluster():
        made = _map(_mapped(job), numbered, None).groupby("group").sum("score")
        write_all(job, _texts(made))


def _mapped(job: Job) -> Any:
    if Path(job.input).is_file():
        source = ray.data.read_parquet(job.input)
    else:
        source = ray.data.read_csv(job.input)
    return _map(source, job.function(), max(1, job.size // ROW_BYTES_ON_DISK))


def keys(job: Job) -> None:
    """Group by key, and map the groups."""
    run = job.function()
    start(job)
    with job.timed_on_cluster():
        groups = ray.data.read_parquet(job.input).groupby("key")
        write_all(job, _texts(groups.map_groups(run, batch_format="pandas")))


def frame(job: Job) -> None:
    """Hand the frame over, and map its batches."""
    from benchmarks.frames import ROW_BYTES, make_frame

    run = job.function()
    whole = make_frame(int(job.input))
    with job.timed():
        start(job)
        made = _map(ray.data.from_pandas(whole), run, job.size // ROW_BYTES)
        write_all(job, _texts(made))


def lazy_frame(job: Job) -> None:
    """Map the blocks that a first map has computed."""
    from benchmarks.lazy_frames import LazyFrame, partition

    run = job.function()
    given = LazyFrame.of(job)

    def block(numbers: dict[str, Any]) -> pd.DataFrame:
        return partition(int(numbers["id"][0]), given.busy_s, given.waiting_s)

    start(job)
    with job.timed():
        numbers = ray.data.range(given.count, override_num_blocks=given.count)
        blocks = numbers.map_batches(block, batch_size=1)
        write_all(job, _texts(_map(blocks, run, None)))


def _map(source: Any, run: Callable[[pd.DataFrame], pd.DataFrame], rows: int | None) -> Any:
    return source.map_batches(run, batch_size=rows, batch_format="pandas")


def _texts(made: Any) -> Iterator[bytes]:
    return (csv_text(frame) for frame in made.iter_batches(batch_format="pandas"))


def _no_header() -> dict[str, Any]:
    from pyarrow import csv

    return {"write_options": csv.WriteOptions(include_header=False)}


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
