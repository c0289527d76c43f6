"""A program that runs a keyed job, and prints how many bytes its own threads have read.

``keyed_driver.py CLUSTER KIND``, in a folder with `script/sums.py`. Unless the table is made on
the nodes, `warm.parquet` and `table.parquet` lie there, too.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import LocalCluster

import daskprs

LOOK_EVERY_S = 0.02
KEYS, ROWS, PARTITIONS, WIDTH = 50, 100_000, 60, 12
"""Of a table that the nodes make: 670 MB."""


def made(partition: int, rows: int) -> pd.DataFrame:
    """Return a partition of that table."""
    row = np.arange(partition * rows, (partition + 1) * rows)
    numbers = {f"x{column}": row * 0.5 for column in range(WIDTH)}
    return pd.DataFrame({"key": row * 7 % KEYS, "row": row, **numbers})


def made_by_nodes(name: str) -> Any:
    """Return a table that nobody has computed yet."""
    partitions, rows = (PARTITIONS, ROWS) if name == "table.parquet" else (2, 100)
    return dd.from_map(made, range(partitions), rows=rows, meta=made(0, 1))


LOAD: dict[str, Any] = {
    "path": str,
    "dask": dd.read_parquet,
    "made by nodes": made_by_nodes,
}


class Reads(threading.Thread):
    """Notes what each thread has read: the count of the process has that of its children, too."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._over = threading.Event()
        self._of_threads: dict[int, int] = {}

    def look(self) -> int:
        """Return the bytes that all threads have read, but this one."""
        for folder in Path("/proc/self/task").iterdir():
            if int(folder.name) != self.native_id:
                with contextlib.suppress(OSError):  # it has just ended
                    told = (folder / "io").read_text()
                    self._of_threads[int(folder.name)] = int(told.split()[1])
        return sum(self._of_threads.values())

    def run(self) -> None:
        """Look now and then, since threads end."""
        while not self._over.wait(LOOK_EVERY_S):
            self.look()

    def end(self) -> int:
        """Return what `look` does for the last time."""
        self._over.set()
        self.join()
        return self.look()


def call(data: Any, job_dir: str, client: str | None) -> None:
    """Run a job."""
    daskprs.parallel_run(
        data,
        "script/sums.py",
        partition_keys="key",
        client=client,
        process_count_per_node=2 if client is None else None,
        job_dir=job_dir,
        output_dir=f"{job_dir}-out",
        progress=False,
    )


def main(where: str, kind: str) -> None:
    """Run a small job, so that all is imported, and look what another one reads."""
    with contextlib.ExitStack() as stack:
        client = None if where == "here" else where
        if where == "LocalCluster":
            workers = LocalCluster(
                n_workers=2,
                threads_per_worker=1,
                dashboard_address="127.0.0.1:0",
                local_directory="scratch",
            )
            client = stack.enter_context(workers).scheduler_address
        call(LOAD[kind]("warm.parquet"), "warm", client)
        reads = Reads()
        reads.start()
        before = reads.look()
        call(LOAD[kind]("table.parquet"), "job", client)
        print(reads.end() - before)


if __name__ == "__main__":
    main(*sys.argv[1:])
