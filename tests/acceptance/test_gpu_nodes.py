"""A machine with a GPU, and jobs that do not use it: they run on all cores, and it is said."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pytest

import daskprs
from daskprs._agent.node.environment import usable_cores
from tests.support.cases import mostly_long
from tests.support.local_servers import LOCAL_SERVERS

USES_NONE = """
import os, time

def run(rows):
    time.sleep(0.05)
    if os.path.exists("BAD") and rows["n"].iloc[0] == 39:
        raise ValueError("a bad row")
    seen = os.environ["CUDA_VISIBLE_DEVICES"]
    return rows.assign(pid=os.getpid(), seen=seen, threads=os.environ["OMP_NUM_THREADS"])
"""
LOADS = """
import mmap, os

def load():
    os.makedirs("torch/lib", exist_ok=True)
    with open("torch/lib/libtorch_cpu.so", "wb") as file:
        file.write(b"library")
    with open("torch/lib/libtorch_cpu.so", "rb") as file:
        return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)

def init():
    global mapped
    if not LATE:
        mapped = load()

def run(rows):
    global mapped
    if LATE and rows["n"].iloc[0] == 30:
        mapped = load()
    return rows.assign(pid=os.getpid(), seen=os.environ["CUDA_VISIBLE_DEVICES"])
"""

OPENS = """
import mmap, os
from pathlib import Path

os.makedirs("torch/lib", exist_ok=True)
Path("torch/lib/libtorch_cuda.so").write_bytes(b"library")
with open("torch/lib/libtorch_cuda.so", "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
device = open("DEVICE")

def has_gpu(pid):
    open_files = [os.path.realpath(one) for one in Path(f"/proc/{pid}/fd").iterdir()]
    return "DEVICE" in open_files or "libtorch" in Path(f"/proc/{pid}/maps").read_text()

def above(pid):
    while pid > 1:
        yield pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

def run(rows):
    agent, *others = above(os.getpid())
    found = [pid for pid in others if DRIVER in above(pid) and has_gpu(pid)]
    return rows.assign(pid=agent, has_gpu=has_gpu(agent), count=len(others), found=str(found))
"""
"""Opens a stand-in for a device; looks at the processes from the driver down to the agent."""


@pytest.fixture(autouse=True)
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this machine have one GPU: the variable names it, as a batch system does."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")


def score(folder: Path, script: str, count: int = 40, **options: object) -> pd.DataFrame:
    """Run a script over the rows 0, 1, …, and return what it has returned."""
    (folder / "code").mkdir(exist_ok=True)
    (folder / "code/script.py").write_text(script)
    result = daskprs.parallel_run(
        pd.DataFrame({"n": range(count)}),
        folder / "code/script.py",
        mini_batch_size=8,
        job_dir=folder / "job",
        **options,  # type: ignore[arg-type]
    )
    rows = result.to_pandas()
    assert rows["n"].tolist() == list(range(count))
    return rows


def log_of(folder: Path) -> str:
    """Return the driver's log."""
    return (folder / "job/logs/sys/master_role.txt").read_text()


@pytest.mark.skipif(usable_cores() < 2, reason="one core has one process anyway")
def test_a_script_that_uses_no_gpu_runs_on_all_cores_and_a_resume_does_so_at_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The first mini-batch shows it; further processes see no GPU."""
    bad = tmp_path / "bad"
    bad.touch()
    script, count = USES_NONE.replace("BAD", str(bad)), 40 + 2 * usable_cores()
    with pytest.raises(daskprs.ParallelRunFailed):
        score(tmp_path, script, count, run_max_try=1)
    said = "the script has loaded no library that can use a GPU"
    assert log_of(tmp_path).count(said) == 1
    assert "Set gpus_per_process" in capfd.readouterr().err
    bad.unlink()
    rows = score(tmp_path, script, count, resume=True)
    first, *others = rows.groupby("pid", sort=False)["seen"].first()
    assert first == "0"
    assert len(others) >= usable_cores()
    assert set(others) == {"-1"}
    assert log_of(tmp_path).count(said) == 1


def test_a_script_that_loads_such_a_library_keeps_one_process_for_each_gpu(tmp_path: Path) -> None:
    """It is told that the GPU was not used."""
    rows = score(tmp_path, f"LATE = False\n{LOADS}")
    assert len(set(rows["pid"])) == 1
    assert set(rows["seen"]) == {"0"}
    assert "has loaded torch, but has used no GPU" in log_of(tmp_path)


def test_a_script_that_loads_such_a_library_later_is_warned_once(tmp_path: Path) -> None:
    """The option to set is named."""
    score(tmp_path, f"LATE = True\n{LOADS}")
    warning = "has loaded torch, but GPUs are hidden"
    assert log_of(tmp_path).count(warning) == 1
    assert "Set gpus_per_process=1" in log_of(tmp_path)


@pytest.mark.parametrize(
    "options",
    mostly_long(
        [{"gpus_per_process": 1}, {"process_count_per_node": 1}], suite=[{"gpus_per_process": 1}]
    ),
)
def test_what_the_user_says_holds(tmp_path: Path, options: dict[str, int]) -> None:
    """One process, with the GPU, without a word."""
    rows = score(tmp_path, USES_NONE, **options)
    assert len(set(rows["pid"])) == 1
    assert set(rows["seen"]) == {"0"}
    assert "library" not in log_of(tmp_path)


@pytest.mark.parametrize("options", mostly_long([{}, {"gpus_per_process": 0}], suite=[{}]))
def test_partitions_of_a_lazy_collection_use_all_threads_too(
    tmp_path: Path, options: dict[str, int]
) -> None:
    """Agents within Dask's tasks: the first of them shows it, or the caller has said it."""
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    (tmp_path / "script.py").write_text(USES_NONE)
    frame = dd.from_pandas(pd.DataFrame({"n": range(40)}), npartitions=20)
    meta = {"n": "int64", "pid": "int64", "seen": "string", "threads": "string"}
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, **LOCAL_SERVERS
        ) as cluster,
        Client(cluster),
    ):
        lazy = daskprs.map_batches(
            frame, tmp_path / "script.py", schema=meta, committed=False, **options
        )
        rows = lazy.compute()
    assert sorted(rows["n"]) == list(range(40))
    assert rows["pid"].nunique() == 2
    assert set(rows["seen"]) == ({"-1"} if options else {"0", "-1"})


def test_only_agents_have_a_library_or_a_device_of_a_gpu(tmp_path: Path) -> None:
    """A context in the driver, the worker or the zygote would be broken in each of its forks."""
    device = tmp_path / "nvidia0"
    device.touch()
    script = OPENS.replace("DEVICE", str(device)).replace("DRIVER", str(os.getpid()))
    options = {"process_count_per_node": 2, "gpus_per_process": 0.5}
    rows = score(tmp_path, script, **options)
    assert rows["has_gpu"].all()
    assert rows["count"].min() >= 2  # the zygote and this process
    assert {*rows["found"]} == {"[]"}
    here = [str(one.resolve()) for one in Path("/proc/self/fd").iterdir()]
    assert not [place for place in here if place.startswith("/dev/nvidia")]
