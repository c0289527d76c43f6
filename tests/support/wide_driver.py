"""A caller on a node of its own: what a job on a dask DataFrame costs it.

``python -m tests.support.wide_driver SCHEDULER WIDTH OUTPUT``: rows have `WIDTH` columns. Prints,
as JSON, the bytes that went through the node's network interfaces, and the peak of the caller's
memory.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

COUNT = 32
ROWS = 10_000
RETURNED = 500
"""Rows that `run` returns of each partition."""
SCRIPT = f"""
def run(rows):
    return [f"{{number}} {{number}}" for number in rows["c0"].iloc[:{RETURNED}]]
"""


def partition(number: int, width: int) -> pd.DataFrame:
    """Return a partition, after a while that does not depend on its width."""
    time.sleep(0.2)
    return pd.DataFrame({f"c{column}": np.arange(ROWS) + number for column in range(width)})


def traffic_bytes() -> int:
    """Return the bytes that all interfaces of this network have received and sent."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()[2:]
    counters = [line.partition(":")[2].split() for line in lines]
    return sum(int(one[0]) + int(one[8]) for one in counters)


def main(scheduler: str, width: int, output: str) -> None:
    """Run the job, and print what it has cost."""
    import daskprs

    frame = dd.from_map(partition, range(COUNT), width=width, meta=partition(0, width).iloc[:0])
    with tempfile.TemporaryDirectory() as folder, Client(scheduler) as client:
        script = Path(folder, "script.py")
        script.write_text(SCRIPT)
        before = traffic_bytes()
        result = daskprs.parallel_run(
            frame,
            script,
            client=client,
            job_dir=Path(folder, "job"),
            output_dir=output,
            progress=False,
        )
        after = traffic_bytes()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    rows = result.items.succeeded
    print(json.dumps({"traffic": after - before, "memory": peak, "rows": rows}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
