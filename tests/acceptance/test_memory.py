"""What a user learns about the memory of his mini-batches, and about a process that lacked it."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

import daskprs
from tests.support.memory_group import memory_group, why_no_memory_group

MB = 1 << 20
CLOSE_MB = 12
"""Beside what the script allocates, Python and its libraries take some memory now and then."""
SCRIPT = """
import os, signal, subprocess, sys, time

CHILD = "import time; big = b'x' * ({0} << 20); time.sleep({1}); print(len(big))"

def run(rows):
    own, child, seconds, deed = rows.iloc[0]
    big = b"x" * (int(own) << 20)
    time.sleep(0.1)
    if child:
        subprocess.run([sys.executable, "-c", CHILD.format(child, seconds)], check=True)
    if deed == "die":
        del big
        os.kill(os.getpid(), signal.SIGKILL)
    if deed == "hang":
        time.sleep(3600)
    return [len(big)]
"""


def job(folder: Path, rows: list[tuple[int, int, float, str]], **options: Any) -> Any:
    """Run a mini-batch for each row: MB of its own, MB and seconds of a child, and its end."""
    (folder / "script.py").write_text(SCRIPT)
    frame = pd.DataFrame(rows, columns=["own", "child", "seconds", "deed"])
    given: dict[str, Any] = {
        "mini_batch_size": 1,
        "job_dir": folder / "job",
        "process_count_per_node": 1,
        "allowed_failed_count": -1,
        "run_max_try": 1,
        "progress": False,
    }
    return daskprs.parallel_run(frame, folder / "script.py", **given | options)


def peaks_of(result: Any) -> list[float]:
    """Return the highest memory of each mini-batch in MB."""
    table = pd.read_csv(result.logs_dir / "sys" / "job_report" / "processed_mini-batches.csv")
    details = table.sort_values("Mini-batch Id")["Mini-batch Detail"].map(json.loads)
    return [detail["peak_memory_mb"] for detail in details]


def test_each_mini_batch_has_its_own_peak(tmp_path: Path) -> None:
    """Peaks of a tenth of a second, whatever the mini-batch before needed; also one that died."""
    sizes = [0, 300, 0, 150, 40]
    result = job(tmp_path, [(size, 0, 0.0, "") for size in sizes] + [(250, 0, 0.0, "die")])
    base, *others = peaks_of(result)
    assert [peak - base for peak in others] == [
        pytest.approx(size, abs=CLOSE_MB) for size in [*sizes[1:], 250]
    ]
    (attempt,) = pq.read_table(result.failed_file).to_pylist()[0]["attempts"]
    assert attempt["peak_bytes"] / MB == pytest.approx(base + 250, abs=CLOSE_MB)
    (log,) = (result.logs_dir / "sys" / "node" / "0").glob("process000.txt")
    assert f"|peak MB {others[0]}" in log.read_text()
    with (result.logs_dir / "sys" / "job_report" / "process_summary.csv").open() as file:
        assert {row["Process"]: row["Peak Memory (MB)"] for row in csv.DictReader(file)} == {
            "process000": str(max(others))
        }


def test_sub_processes_count(tmp_path: Path) -> None:
    """One that has gone is known if it was the largest so far, or lived for some seconds."""
    rows = [(0, 0, 0.0, ""), (0, 200, 0.1, ""), (0, 100, 3.0, ""), (0, 0, 0.0, "")]
    base, first, second, last = peaks_of(job(tmp_path, rows))
    interpreter = 20
    assert first - base == pytest.approx(200 + interpreter / 2, abs=CLOSE_MB + interpreter)
    assert second - base == pytest.approx(100 + interpreter / 2, abs=CLOSE_MB + interpreter)
    assert last == pytest.approx(base, abs=CLOSE_MB)


def test_a_killed_mini_batch_has_not_the_peak_of_an_earlier_sub_process(tmp_path: Path) -> None:
    """The kernel adds it to what it says of a dead process; then the peak may be unknown."""
    result = job(tmp_path, [(0, 300, 0.0, ""), (0, 0, 0.0, "die")])
    earlier, killed = peaks_of(result)
    assert earlier > 300
    assert killed is None or killed < 200


def test_the_last_minutes_of_a_process_that_was_killed_are_kept(tmp_path: Path) -> None:
    """Second by second, with the mini-batch that it was at."""
    result = job(tmp_path, [(0, 0, 0.0, ""), (200, 0, 0.0, "hang")], run_invocation_timeout=4)
    with (result.logs_dir / "perf" / "0" / "process000.last_minutes.csv").open() as file:
        rows = list(csv.DictReader(file))
    running = [row for row in rows if row["Phase"] == "running"]
    assert len(running) >= 2
    assert {row["Mini-batch Id"] for row in running} == {"1"}
    (attempt,) = pq.read_table(result.failed_file).to_pylist()[0]["attempts"]
    seen = float(running[-1]["Memory Rss (MB)"])
    assert seen == pytest.approx(attempt["peak_bytes"] / MB, abs=CLOSE_MB)
    assert seen > 200


def test_a_kill_from_outside_is_not_taken_for_a_lack_of_memory(tmp_path: Path) -> None:
    """It tells the memory all the same."""
    result = job(tmp_path, [(250, 0, 0.0, "die"), (0, 0, 0.0, "")])
    error = result.failed["error"][0]
    assert error.startswith("PROCESS_DIED: process000 exits with returncode -9 (SIGKILL) while")
    assert "it was killed from outside, and not by the kernel for lack of memory. It held" in error
    last_minutes = "logs/perf/0/process000.last_minutes.csv"
    assert (result.job_dir / last_minutes).exists() == (last_minutes in error)


DRIVER = """
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
from tests.acceptance.test_memory import job, peaks_of

if __name__ == "__main__":
    result = job(Path(sys.argv[2]), [(0, 0, 0.0, ""), (2000, 0, 0.0, ""), (0, 2000, 0.0, "")])
    for error in result.failed["error"]:
        print(error)
"""


def test_the_kernels_kill_for_lack_of_memory_is_named(tmp_path: Path) -> None:
    """With what the process held, the limit, and what to change: in every place that tells it."""
    if reason := why_no_memory_group():
        pytest.skip(reason)
    with memory_group(900 * MB) as group:
        enter = f"import os; open({str(group / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))"
        done = subprocess.run(
            [sys.executable, "-c", f"{enter}\n{DRIVER}", str(Path.cwd()), tmp_path],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    assert done.returncode == 0, done.stderr
    error, of_child = done.stdout.splitlines()
    assert re.match(r"MemoryError: process00. exits with returncode -9 \(SIGKILL\) while it", error)
    assert "the kernel killed it for lack of memory" in error
    assert "the limit of its container is 900 MB" in error
    assert "mini_batch_size" in error
    folder = tmp_path / "job"
    row, _ = pq.read_table(folder / "failed.parquet").to_pylist()
    assert row["error"] == error
    assert 300 * MB < row["attempts"][0]["peak_bytes"] < 900 * MB
    for log in ("job_error.txt", "sys/node/0/_main.txt", "sys/job_report/process_summary.csv"):
        assert "the kernel killed it for lack of memory" in (folder / "logs" / log).read_text()
    assert of_child.startswith("CalledProcessError: ")
    assert "Meanwhile the kernel killed a process here for lack of memory" in of_child
