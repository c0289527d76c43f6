"""What a lazy stage costs beside `map_partitions` of the same function.

``python -m benchmarks.lazily`` prints, for each form, the seconds and the processor time of a first
computation and of one with three times as many partitions. The difference is the steady state: it
holds no start of agents. The function waits, so that a machine of few cores can have many workers.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import dask.dataframe as dd
import pandas as pd
from distributed import Client, LocalCluster

import daskprs
from benchmarks.process_tree import TICKS_PER_S
from daskprs._system.linux import descendants

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = {"number": "int64", "twice": "int64"}
ROWS = 10
"""Rows of a partition."""


class Cost(NamedTuple):
    """What a computation took."""

    wall_s: float
    cpu_s: float

    def __sub__(self, other: Cost) -> Cost:
        """Return what one took more than another."""
        return Cost(self.wall_s - other.wall_s, self.cpu_s - other.cpu_s)


def cpu_s() -> float:
    """Return the processor time of this process and of all below it, also of those that ended."""
    ticks = 0
    for pid in (os.getpid(), *descendants(os.getpid())):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / TICKS_PER_S


def computed(lazy: Any) -> Cost:
    """Compute a sum over a collection, and return what that took."""
    before, begun = cpu_s(), time.perf_counter()
    lazy["twice"].sum().compute()
    return Cost(time.perf_counter() - begun, cpu_s() - before)


def waiting(seconds: float) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Return a script that waits."""

    def run(rows: pd.DataFrame) -> pd.DataFrame:
        time.sleep(seconds)
        return pd.DataFrame({"number": rows["number"], "twice": rows["number"] * 2})

    return run


def forms(count: int, seconds: float, folder: Path) -> dict[str, Any]:
    """Return collections of the same rows, by what makes them."""
    frame = pd.DataFrame({"number": range(count * ROWS)})
    data, run = dd.from_pandas(frame, npartitions=count), waiting(seconds)
    return {
        "map_partitions": data.map_partitions(run, meta=SCHEMA),
        "committed=False": daskprs.map_batches(data, run, schema=SCHEMA, committed=False),
        "committed=True": daskprs.map_batches(
            data, run, schema=SCHEMA, job_dir=folder / f"job-{count}"
        ),
    }


@click.command()
@click.option("--workers", default=4, show_default=True)
@click.option("--threads", default=2, show_default=True, help="Of each worker.")
@click.option("--partitions", default=200, show_default=True, help="Of the first computation.")
@click.option("--wait-ms", default=100.0, show_default=True, help="In each call of run.")
def main(workers: int, threads: int, partitions: int, wait_ms: float) -> None:
    """Print what each form costs."""
    print(f"{'':17}{'first':>20}{'start':>20}{'each partition':>24}")
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(
            n_workers=workers, threads_per_worker=threads, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(workers)
        computed(forms(workers * threads, 0.0, Path(folder))["map_partitions"])  # imports
        few, many = (forms(n, wait_ms / 1000, Path(folder)) for n in (partitions, 3 * partitions))
        for name in few:
            first = computed(few[name])
            more = computed(many[name]) - first
            each = Cost(*(value / (2 * partitions) for value in more))
            start = first - Cost(*(value * partitions for value in each))
            told = [f"{one.wall_s:.2f} s, {one.cpu_s:.1f} s" for one in (first, start)]
            per = f"{each.wall_s * 1e3:.1f} ms, {each.cpu_s * 1e3:.1f} ms"
            print(f"{name:17}{told[0]:>20}{told[1]:>20}{per:>24}", flush=True)


if __name__ == "__main__":
    main()
