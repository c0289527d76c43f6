"""What a job writes about the machines: tables over time, and a profile of `run`."""

from __future__ import annotations

import pstats
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any

import pandas as pd
from distributed import Client, LocalCluster

import daskprs
from tests.support.local_servers import LOCAL_SERVERS

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """
import csv, sys, time
from pathlib import Path

perf = Path(sys.argv[-1])

def rows_of(name):
    table = perf / name
    return [*csv.DictReader(table.read_text().splitlines())] if table.exists() else []

def run(rows):
    burn(0.2)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        rows_seen = rows_of("processes_resource_usage.csv")
        seen = {row["Process"] for row in rows_seen if row["Mini-batch Id"]}
        if len(seen) == 4 and len(rows_of("node_resource_usage.csv")) >= 3:
            return rows
        time.sleep(0.05)

def burn(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass
"""


def job(folder: Path, script: str, *arguments: str, **options: Any) -> Any:
    """Run a script over four mini-batches."""
    (folder / "script.py").write_text(script)
    given: dict[str, Any] = {
        "mini_batch_size": 1,
        "job_dir": folder / "job",
        "arguments": arguments,
        "progress": False,
    }
    frame = pd.DataFrame({"number": range(4)})
    return daskprs.parallel_run(frame, folder / "script.py", **given | options)


def test_nodes_and_processes_have_rows_over_time(tmp_path: Path) -> None:
    """On a cluster with two workers on one node, one of which speaks for the node."""
    perf = tmp_path / "job" / "logs" / "perf" / "0"
    with (
        LocalCluster(n_workers=2, threads_per_worker=2, **LOCAL_SERVERS) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        job(tmp_path, SCRIPT, str(perf), client=client, resource_monitor_interval=1)
    # multiprocessing keeps a process of its own once it has started others.
    resource_tracker._resource_tracker._stop()
    node = pd.read_csv(perf / "node_resource_usage.csv")
    times = pd.to_datetime(node["Utc Time"])
    assert len(node) >= 3
    assert (times.diff().dropna() >= pd.Timedelta(seconds=0.9)).all()
    assert node["Cpu Percent"].between(0, 100).all()
    total, used = node["Memory Total (MB)"], node["Memory Used (MB)"]
    assert ((used > 0) & (used < total)).all()
    assert (node["# of TCP Connections"] > 2).all(), "those of the cluster at least"
    processes = pd.read_csv(perf / "processes_resource_usage.csv")
    assert set(processes["Process"]) == {f"process{number:03d}" for number in range(4)}
    last = processes.groupby("Process").last()
    assert set(last["Mini-batch Id"]) == {0, 1, 2, 3}
    assert last["Cpu Seconds"].sum() > 0
    assert (last["Memory Pss (MB)"] < last["Memory Rss (MB)"]).all(), "forks share what is imported"
    disks = pd.read_csv(perf / "node_disk_usage.csv")
    assert disks["Used Percent"].between(0, 100).all()
    listed = max((perf / "os").rglob("processes_*")).read_text()
    assert any(f"\n{pid:8} " in listed for pid in processes["Pid"])


def test_an_interval_of_0_writes_nothing(tmp_path: Path) -> None:
    """Nor does a job of a second, with any interval."""
    result = job(tmp_path, "def run(rows): return rows", resource_monitor_interval=0)
    assert not (result.logs_dir / "perf").exists()


def test_profiles_show_where_run_spends_its_time(tmp_path: Path) -> None:
    """For `pstats`, with the number of calls in each process."""
    script = "def run(rows):\n    return deep(rows)\n\ndef deep(rows):\n    return rows\n"
    for module in ("cProfile", "profile"):
        folder = tmp_path / module
        folder.mkdir()
        result = job(folder, script, profiling_module=module, process_count_per_node=2)
        profiles = list((result.logs_dir / "sys" / "node" / "0").glob("*.profile"))
        stats = pstats.Stats(*map(str, profiles)).get_stats_profile().func_profiles
        assert {stats[name].ncalls for name in ("run", "deep")} == {"4"}


def test_a_profile_has_the_calls_of_run_alone(tmp_path: Path) -> None:
    """From Python 3.12 on, `cProfile` takes the calls of other threads for those of `run`."""
    path, script = tmp_path / "numbers.csv", tmp_path / "script.py"
    pd.DataFrame({"number": range(2000)}).to_csv(path, index=False)
    script.write_text(
        "import time\n"
        "def run(rows):\n    return deep(rows)\n"
        "def deep(rows):\n    time.sleep(0.003)\n    return rows\n"
    )
    result = daskprs.parallel_run(
        path, script, mini_batch_size=100, process_count_per_node=1, profiling_module="cProfile"
    )
    [profile] = (result.logs_dir / "sys" / "node" / "0").glob("*.profile")
    functions = pstats.Stats(str(profile)).get_stats_profile().func_profiles
    calls = {functions[name].ncalls for name in ("run", "deep")}
    assert calls == {str(result.mini_batches.total)}
    assert "_load" not in functions


def test_a_profile_is_there_though_its_process_was_killed(tmp_path: Path) -> None:
    """It is written as the job goes on; the frames of the profiler are not the script's."""
    script = (
        "import os\n"
        "def run(rows):\n"
        "    number = rows['number'].iloc[0]\n"
        "    if number == 1:\n"
        "        raise ValueError('as planned')\n"
        "    if number == 2:\n"
        "        os.kill(os.getpid(), 9)\n"
        "    return rows\n"
    )
    options: dict[str, Any] = {
        "process_count_per_node": 1,
        "run_max_try": 1,
        "allowed_failed_count": 2,
    }
    result = job(tmp_path, script, profiling_module="profile", **options)
    killed = result.logs_dir / "sys" / "node" / "0" / "process000.profile"
    calls = pstats.Stats(str(killed)).get_stats_profile().func_profiles["run"].ncalls
    assert 1 <= int(calls) <= 2
    logs = (result.logs_dir / "user" / "error" / "0").iterdir()
    traceback = next(text for log in logs if "as planned" in (text := log.read_text()))
    assert "profile.py" not in traceback
    assert "daskprs" not in traceback.partition("Traceback")[2].replace("daskprs-jobs", "")
