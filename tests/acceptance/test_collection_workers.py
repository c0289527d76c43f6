"""What the workers that compute a collection need, and what becomes of it when they go."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster, SchedulerPlugin

import daskprs
from daskprs._cluster.partition_feed import AHEAD
from daskprs._cluster.staged_in_use import PARTITIONS
from tests.support.local_servers import LOCAL_SERVERS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WORKERS, SLOTS = 2, 2
LIMIT_BYTES = 500 << 20
PARTITION_BYTES = 16 << 20
COUNT = 10 * WORKERS * LIMIT_BYTES // PARTITION_BYTES
ROWS = PARTITION_BYTES // 8
SCRIPT = """
import time

def run(rows):
    time.sleep(0.05)
    return [f"{rows['n'].iloc[0]} {len(rows)}"]
"""


def partition(number: int) -> pd.DataFrame:
    """Return a partition; nothing stores it."""
    return pd.DataFrame({"n": np.full(ROWS, number)})


class Holdings(SchedulerPlugin):  # type: ignore[misc] # distributed is not typed
    """Counts the partitions that workers hold.

    Attributes
    ----------
    most
        The largest number so far.

    """

    def __init__(self, scheduler: Any) -> None:
        self.most = 0
        self._scheduler = scheduler

    def transition(self, key: Any, start: str, finish: str, *_: Any, **__: Any) -> None:  # noqa: ARG002
        """Count whenever a partition was computed."""
        if finish == "memory" and _is_partition(key):
            tasks = self._scheduler.tasks.values()
            held = {task.key[1] for task in tasks if task.who_has and _is_partition(task.key)}
            self.most = max(self.most, len(held))


def _is_partition(key: Any) -> bool:
    """Say whether a key is that of a partition, computed or staged."""
    return isinstance(key, tuple) and str(key[0]).startswith(("partition-", "daskprs-partition-"))


@contextmanager
def bytes_staged(scratch: Path) -> Iterator[list[int]]:
    """Yield a list that has the largest size of all staged partitions when the block has ended."""
    most, over = [0], threading.Event()

    def look() -> None:
        while not over.wait(0.01):
            sizes = []
            for file in scratch.rglob(f"{PARTITIONS}/*"):
                try:
                    sizes.append(file.stat().st_size)
                except FileNotFoundError:  # it has just gone
                    continue
            most[0] = max(most[0], sum(sizes))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield most
    finally:
        over.set()
        looking.join()


@pytest.mark.long
def test_a_table_ten_times_larger_than_the_memory_of_all_workers(tmp_path: Path) -> None:
    """They hold no more than one for each slot and two for each worker, and none is killed.

    Which of them computes a partition is up to Dask, which lets idle workers steal tasks.
    """
    (tmp_path / "script.py").write_text(SCRIPT)
    settings = {"temporary-directory": str(tmp_path / "scratch")}
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=WORKERS,
            threads_per_worker=SLOTS,
            memory_limit=LIMIT_BYTES,
            **LOCAL_SERVERS,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
        bytes_staged(tmp_path / "scratch") as staged,
    ):
        holdings = Holdings(cluster.scheduler)
        cluster.scheduler.add_plugin(holdings)
        before = client.run(os.getpid)
        result = daskprs.parallel_run(
            dd.from_map(partition, range(COUNT), meta=partition(0).iloc[:0]),
            tmp_path / "script.py",
            client=client,
            job_dir=tmp_path / "job",
            output_dir=tmp_path / "out",
            progress=False,
        )
        assert client.run(os.getpid) == before
    assert result.output_file is not None
    lines = result.output_file.read_text().splitlines()
    assert lines == [f"{number} {ROWS}" for number in range(COUNT)]
    most = WORKERS * (SLOTS + AHEAD)
    # One that was let go may be on its way out.
    assert SLOTS < holdings.most <= most + 1
    assert staged[0] <= 1.05 * (most + 1) * PARTITION_BYTES


def fatal_once(number: int, mark: Path) -> pd.DataFrame:
    """Return a partition; the first time, the third one ends its worker."""
    if number == 2 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return pd.DataFrame({"n": [number]})


@pytest.mark.long
def test_partitions_of_the_only_worker_are_computed_by_the_next(tmp_path: Path) -> None:
    """When it dies, no worker is there for a while."""
    (tmp_path / "script.py").write_text("def run(rows):\n    return list(rows['n'])\n")
    made = dd.from_map(fatal_once, range(6), mark=tmp_path / "mark", meta={"n": int})
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, **LOCAL_SERVERS) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        result = daskprs.parallel_run(
            made,
            tmp_path / "script.py",
            client=client,
            job_dir=tmp_path / "job",
            output_dir=tmp_path / "out",
            progress=False,
        )
    assert result.output_file is not None
    assert result.output_file.read_text().split() == [*"012345"]
