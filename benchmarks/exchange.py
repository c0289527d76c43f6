"""Rows brought together by key on a LocalCluster: by daskprs, and by Dask's P2P shuffle.

``python -m benchmarks.exchange input.parquet [processes]`` prints seconds, and the memory of all
processes. The input is that of the workload ``keys``, in the column ``key``. Neither side runs
anything on the rows: P2P brings them together by partition, daskprs by key and in input order.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import dask
import dask.dataframe as dd
import psutil
from distributed import Client, LocalCluster

from daskprs._cluster.key_exchange import KeyExchange
from daskprs._inputs.keys.shuffle import Cut
from daskprs._inputs.open_source import open_source
from daskprs._inputs.source.read_options import ReadOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs._inputs.source.source import TableSource

LOOK_EVERY_S = 0.05


def by_daskprs(client: Client, path: str) -> int:
    """Bring the rows of each key together, and return how many rows there are."""
    with tempfile.TemporaryDirectory() as scratch:
        exchange = KeyExchange(client, None, None)
        try:
            groups = exchange.run(_table(path), ["key"], Path(scratch), lambda _: None)
            return sum(group.rows for group in groups)
        finally:
            exchange.close()


def by_p2p(client: Client, path: str) -> int:
    """Shuffle into as many partitions as daskprs has parts, and return how many rows there are."""
    del client
    parts = Cut.of(_table(path)).parts
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        table = dd.read_parquet(path, split_row_groups=True)
        rows = table.shuffle("key", npartitions=parts).map_partitions(len).compute()
    return int(rows.sum())


def _table(path: str) -> TableSource:
    return open_source(path, ReadOptions())  # type: ignore[return-value]


@contextmanager
def peak_bytes() -> Iterator[list[int]]:
    """Yield a list that has, at its end, the most memory of this process and its descendants."""
    over, peak = threading.Event(), [0]

    def look() -> None:
        while not over.wait(LOOK_EVERY_S):
            used = 0
            for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
                try:
                    used += process.memory_full_info().pss
                except psutil.Error:
                    continue
            peak[0] = max(peak[0], used)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()


def main(path: str, processes: int) -> None:
    """Print what each way takes, in turns."""
    for work in (by_daskprs, by_p2p) * 3:
        with (
            LocalCluster(
                processes, threads_per_worker=1, dashboard_address="127.0.0.1:0"
            ) as cluster,
            Client(cluster) as client,
            peak_bytes() as peak,
        ):
            begin = time.perf_counter()
            rows = work(client, path)
            seconds = time.perf_counter() - begin
        print(f"{work.__name__:12} {rows:,} rows {seconds:6.2f} s {peak[0] >> 20:,} MB")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 4)  # noqa: PLR2004
