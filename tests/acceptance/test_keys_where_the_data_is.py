"""Rows brought together by key: where the data is, and never through the caller."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client

from tests.acceptance.keyed_driver import KEYS, PARTITIONS, ROWS, WIDTH
from tests.support.polling import poll_for
from tests.support.separate_nodes import ROOT, separate_nodes, why_not

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SUMS = """
def run(rows):
    return [f"{rows['key'].iloc[0]} {len(rows)} {rows['row'].sum()}"]
"""
LARGE, SMALLER, GROUPS = 3_000_000, 600_000, 20
TABLE_BYTES = ROWS * PARTITIONS * (2 + WIDTH) * 8
LIMITS = [("memory.limit_in_bytes", "memory.max_usage_in_bytes"), ("memory.max", "memory.peak")]
"""Files of a control group of the first and the second kind: the limit, and the peak."""
DRIVER = Path(__file__).with_name("keyed_driver.py")


def sums(path: Path) -> str:
    """Return what the job writes, made by Arrow alone: keys by their first row."""
    table = pq.read_table(path, columns=["key", "row"])
    groups = table.group_by("key", use_threads=False)
    of_keys = groups.aggregate([("row", "count"), ("row", "sum"), ("row", "first")])
    lines = of_keys.sort_by("row_first").to_pylist()
    return "".join(f"{one['key']} {one['row_count']} {one['row_sum']}\n" for one in lines)


def write_table(path: Path, rows: int = LARGE) -> None:
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


def driven(folder: Path, *words: str, within: Sequence[str] = ()) -> int:
    """Run the program, and return the bytes that it has read."""
    (folder / "script").mkdir()
    (folder / "script" / "sums.py").write_text(SUMS)
    done = subprocess.run(
        [*within, sys.executable, str(DRIVER), *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize(
    "case",
    [
        "here, path",
        pytest.param("LocalCluster, path", marks=pytest.mark.long),
        pytest.param("LocalCluster, dask", marks=pytest.mark.long),
    ],
)
def test_the_caller_reads_less_than_a_tenth(tmp_path: Path, case: str) -> None:
    """Of a table of 100 MB, or of 20 MB: the workers deal its rows out, and gather them."""
    write_table(tmp_path / "table.parquet", SMALLER if case == "here, path" else LARGE)
    write_table(tmp_path / "warm.parquet", 1000)
    read_bytes = driven(tmp_path, *case.split(", "))
    written = (tmp_path / "job-out" / "parallel_run_step.txt").read_text()
    assert written == sums(tmp_path / "table.parquet")
    size = (tmp_path / "table.parquet").stat().st_size
    assert read_bytes < size / 10


@contextmanager
def limited_memory(limit_bytes: int) -> Iterator[tuple[list[str], Path | None]]:
    """Yield what a program runs within, and the file that has its peak, if that is counted.

    That is a control group of its own, or else a limit on its data.
    """
    root = Path("/sys/fs/cgroup")
    root = root / "memory" if (root / "memory").is_dir() else root
    first = root / "memory.limit_in_bytes"
    limit, peak = LIMITS[0] if first.exists() else LIMITS[1]
    group = root / f"daskprs-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(limit_bytes))
    except OSError:
        with suppress(OSError):
            group.rmdir()
        yield ["prlimit", f"--data={limit_bytes}"], None
        return
    enter = 'echo $$ > "$0/cgroup.procs"; exec "$@"'
    try:
        yield ["sh", "-c", enter, str(group)], group / peak
    finally:
        assert poll_for(lambda: not (group / "cgroup.procs").read_text().strip(), 20)
        group.rmdir()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_table_larger_than_the_callers_memory_never_comes_to_it(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Four nodes that share no disk make it, and bring its rows together."""
    if reason := why_not():
        pytest.skip(reason)
    log = tmp_path_factory.mktemp("nodes") / "log"
    limit_bytes = TABLE_BYTES * 6 // 10
    with (
        separate_nodes(log, [log.parents[1]], count=0) as nodes,
        limited_memory(limit_bytes) as (within, peak),
    ):
        for _ in range(4):
            nodes.start_worker(nodes.add(), "--local-directory", str(log.parents[1] / "scratch"))
        with Client(nodes.address, set_as_default=False) as client:
            client.wait_for_workers(4, timeout=60)
        received = Path(f"/sys/class/net/dprs{os.getpid()}/statistics/rx_bytes")
        before = int(received.read_text())
        read_bytes = driven(tmp_path, nodes.address, "made by nodes", within=within)
        sent_here = int(received.read_text()) - before
        most = limit_bytes if peak is None else int(peak.read_text())
    written = (tmp_path / "job-out" / "parallel_run_step.txt").read_text()
    row = np.arange(PARTITIONS * ROWS)
    key = row * 7 % KEYS
    lines = [f"{one} {(key == one).sum()} {row[key == one].sum()}" for one in key[:KEYS]]
    assert written.splitlines() == lines
    assert read_bytes < TABLE_BYTES / 10
    assert sent_here < TABLE_BYTES / 10
    assert most < TABLE_BYTES
