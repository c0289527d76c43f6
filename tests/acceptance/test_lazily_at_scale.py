"""A committed stage in a lazy graph, on sixteen workers of which ten are killed."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import dask.dataframe as dd
import pandas as pd
import pytest
from distributed import Client

import daskprs
from tests.support.by_hand import ByHand
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

WORKERS, KILLED, PARTITIONS = 16, 10, 1_000
LONGEST_S = 300.0
IN_FLIGHT = 10
"""Most mini-batches that one worker has without a commit."""
FRAME = pd.DataFrame({"number": range(PARTITIONS)})
TOTAL = sum(n * 2 for n in range(PARTITIONS))

Workers = tuple[ByHand, list[Any]]


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    """Yield a cluster, and its workers."""
    patient = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "100"}
    cluster = ByHand(tmp_path, patient)
    try:
        yield cluster, [cluster.worker() for _ in range(WORKERS)]
    finally:
        cluster.close()


def noting(file: Path) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Return a script that notes each of its calls."""

    def run(rows: pd.DataFrame) -> pd.DataFrame:
        with file.open("a") as calls:
            calls.write(f"{rows['number'].iloc[0]}\n")
        time.sleep(0.02)
        return pd.DataFrame({"twice": rows["number"] * 2})

    return run


def calls_in(file: Path) -> int:
    """Return the number of noted calls."""
    return file.read_text().count("\n") if file.exists() else 0


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_workers_that_die_cost_what_was_not_committed(tmp_path: Path, workers: Workers) -> None:
    """While the stage runs; once it is committed, they cost nothing."""
    cluster, processes = workers
    calls = tmp_path / "calls"
    with Client(cluster.address) as client:
        client.wait_for_workers(WORKERS, LONGEST_S)
        lazy = daskprs.map_batches(
            dd.from_pandas(FRAME, npartitions=PARTITIONS),
            noting(calls),
            schema={"twice": "int64"},
            job_dir=tmp_path / "job",
        )
        total = client.compute(lazy["twice"].sum())
        assert poll_for(lambda: calls_in(calls) > PARTITIONS // 3, LONGEST_S)
        for process in processes[:KILLED]:
            os.kill(process.pid, 9)
        for _ in range(KILLED):
            cluster.worker()
        assert total.result(LONGEST_S) == TOTAL
        made = calls_in(calls)
        assert PARTITIONS <= made <= PARTITIONS + KILLED * IN_FLIGHT
        client.wait_for_workers(WORKERS, LONGEST_S)
        for process in processes[KILLED:]:
            os.kill(process.pid, 9)
        assert lazy["twice"].sum().compute() == TOTAL
        assert calls_in(calls) == made
