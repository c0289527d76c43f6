"""Rows brought together by key: where the data is, and never through the caller."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

SUMS = """
def run(rows):
    return [f"{rows['key'].iloc[0]} {len(rows)} {rows['row'].sum()}"]
"""
ROWS, GROUPS, KEYS = 3_000_000, 20, 50
DRIVER = Path(__file__).with_name("keyed_driver.py")


def sums(path: Path) -> str:
    """Return what the job writes, made by Arrow alone: keys by their first row."""
    table = pq.read_table(path, columns=["key", "row"])
    groups = table.group_by("key", use_threads=False)
    of_keys = groups.aggregate([("row", "count"), ("row", "sum"), ("row", "first")])
    lines = of_keys.sort_by("row_first").to_pylist()
    return "".join(f"{one['key']} {one['row_count']} {one['row_sum']}\n" for one in lines)


def write_table(path: Path, rows: int = ROWS) -> None:
    """Write a table of some 34 bytes a row."""
    random = np.random.default_rng(5)
    columns: dict[str, Any] = {
        "key": random.integers(0, KEYS, rows),
        "row": np.arange(rows),
        "x": random.random(rows),
        "y": random.random(rows),
        "z": random.random(rows),
    }
    pq.write_table(pa.table(columns), path, row_group_size=-(-rows // GROUPS))


@pytest.mark.parametrize(
    "where,kind", [("here", "path"), ("LocalCluster", "path"), ("LocalCluster", "dask DataFrame")]
)
def test_the_caller_reads_less_than_a_tenth(tmp_path: Path, where: str, kind: str) -> None:
    """Of a table of 100 MB: the workers deal its rows out, and gather them."""
    write_table(tmp_path / "table.parquet")
    write_table(tmp_path / "warm.parquet", 1000)
    (tmp_path / "script").mkdir()
    (tmp_path / "script" / "sums.py").write_text(SUMS)
    done = subprocess.run(
        [sys.executable, str(DRIVER), where, kind],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    written = (tmp_path / "job-out" / "parallel_run_step.txt").read_text()
    assert written == sums(tmp_path / "table.parquet")
    size = (tmp_path / "table.parquet").stat().st_size
    assert int(done.stdout) < size / 10
