"""Run a job that makes a large data set, sum it up on a small cluster, and print what it took.

``one_large_data_set.py FOLDER MEGABYTES``: prints the bytes of rows, the peak of the driver in MB,
and whether the sum is right. It is the entry script of the job, too.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from distributed import Client, LocalCluster
from one_large_job import MB, peak_mb

import daskprs

ROWS = 10 * MB // 8
"""Of a mini-batch."""
WORKER_BYTES = 500 << 20


def run(mini_batch: list[str]) -> pd.DataFrame:
    """Return 10 MB of numbers, which do not get smaller by compression."""
    return numbers(int(Path(mini_batch[0]).name))


def numbers(seed: int) -> pd.DataFrame:
    """Return the rows of a mini-batch."""
    return pd.DataFrame({"x": np.random.default_rng(seed).integers(0, 1 << 62, ROWS)})


def main(folder: Path, megabytes: int) -> None:
    """Run the job, and read its output."""
    count = megabytes // 10
    files = folder / "files"
    files.mkdir()
    for number in range(count):
        (files / f"{number:06d}").touch()
    result = daskprs.parallel_run(
        files,
        __file__,
        input_type="files",
        mini_batch_size=1,
        job_dir=folder / "job",
        output_dir=folder / "out",
        output_format="parquet",
        process_count_per_node=2,
        progress=False,
    )
    peak = peak_mb()
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            memory_limit=WORKER_BYTES,
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster),
    ):
        rows = result.to_dask_dataframe()["x"]
        length, total = len(rows), int((rows % 1009).sum().compute())
    expected = sum(int((numbers(seed)["x"] % 1009).sum()) for seed in range(count))
    print(json.dumps([length * 8, peak, total == expected]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
