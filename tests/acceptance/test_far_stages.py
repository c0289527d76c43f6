"""`preprocess` on nodes without a GPU, for the processes of `run` on a node with one."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from distributed import Client, Nanny, Scheduler, SpecCluster, Worker

import daskprs
from daskprs._cluster import stage_calls
from daskprs._folders.job_folder import JobFolder
from tests.support.cases import mostly_long
from tests.support.polling import poll_for
from tests.support.separate_nodes import separate_nodes, why_not

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCRIPT = """
import os, signal, time
from pathlib import Path
import numpy as np
import pandas as pd

def here():
    return Path.cwd().parent.name + " " + Path.cwd().name

def init_preprocess():
    if "preprocess" in here() and os.environ["WHAT"] == "no codec":
        raise OSError("no codec")

def once(folder, what):
    try:
        Path(folder, what).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True

def decode(rows, context):
    folder, what = os.environ["FOLDER"], os.environ["WHAT"]
    if "preprocess" not in here():
        if not Path(folder, what).exists():
            time.sleep(0.3)  # so that the other node has its turn
    elif once(folder, what):
        if what == "raises":
            raise ValueError("a bad row")
        if what == "dies":
            os.kill(os.getpid(), signal.SIGSEGV)
        if what in ("hangs", "waits"):
            time.sleep(1000)
    return {"n": np.array(rows["n"]), "big": np.ones(100_000), "at": here()}

def run(batch):
    batch["n"] *= 2
    return {**batch, "sum": batch["big"].sum(), "run": here()}

def rows(batch, context):
    return pd.DataFrame({"double": batch["n"], "sum": batch["sum"], "pre": batch["at"],
                         "run": batch["run"], "post": here()})
"""
ROWS = pd.DataFrame({"n": range(300)})


def cluster_of(cpu: type) -> SpecCluster:
    """Return a cluster with a node that declares a GPU, and one of this kind that has none."""
    local = {"dashboard_address": "127.0.0.1:0"}
    gpu = {"nthreads": 2, "host": "127.0.0.1", "resources": {"GPU": 1}, **local}
    other = {"nthreads": 2, "host": "127.0.0.2", **local}
    workers = {
        "gpu": {"cls": Worker, "options": gpu},
        "cpu": {"cls": cpu, "options": other},
    }
    scheduler = {"cls": Scheduler, "options": {"host": "127.0.0.1", **local}}
    return SpecCluster(workers, scheduler)


@pytest.fixture
def client() -> Iterator[Client]:
    """Yield a client of two workers in this process, which are two nodes."""
    with cluster_of(Worker) as cluster, Client(cluster, set_as_default=False) as one:
        one.wait_for_workers(2)
        yield one


def score(folder: Path, client: Client, what: str, **options: Any) -> Any:
    """Run a job in which the node without a GPU does this once."""
    (folder / "code").mkdir()
    (folder / "code" / "script.py").write_text(SCRIPT)
    given = {
        "mini_batch_size": "10 rows",
        "preprocess": "decode",
        "postprocess": "rows",
        "preprocess_processes": 2,
        "gpus_per_process": 1,
        "environment_variables": {"FOLDER": str(folder), "WHAT": what},
        "job_dir": folder / "job",
        "progress": False,
        "client": client,
    }
    return daskprs.parallel_run(ROWS, folder / "code" / "script.py", **(given | options))


def checked(result: Any) -> pd.DataFrame:
    """Return the rows, which are those of a serial run, made where they are to be made."""
    rows: pd.DataFrame = result.to_pandas()
    assert list(rows["double"]) == [2 * n for n in range(300)]
    assert set(rows["sum"]) == {100_000.0}
    (process,) = set(rows["run"])
    assert process.endswith(" process000")
    assert set(rows["post"]) <= {f"{process}-00", f"{process}-01"}
    return rows


def stdout_elsewhere(folder: Path) -> list[Path]:
    """Return the logs of the first process on a node without a GPU, whichever number that has."""
    return [*(JobFolder(folder / "job").logs / "user" / "stdout").glob("*/preprocess000.*")]


def failed_attempts(folder: Path) -> pd.DataFrame:
    """Return the attempts of the job that failed."""
    attempts = pd.read_csv(JobFolder(folder / "job").attempts)
    return attempts[attempts["Status"] != "RUN_DONE"]


def test_nodes_without_a_gpu_preprocess_and_nothing_else(tmp_path: Path, client: Client) -> None:
    """The order is that of the input, and the logs say which nodes took part."""
    rows = checked(score(tmp_path, client, "nothing"))
    there = {one for one in rows["pre"] if "preprocess" in one}
    assert there
    node = 1 - int(rows["run"][0].split()[0])
    assert there <= {f"{node} preprocess000", f"{node} preprocess001"}
    assert failed_attempts(tmp_path).empty
    assert stdout_elsewhere(tmp_path)


@pytest.mark.parametrize("what", mostly_long(["raises", "dies", "hangs"], suite=["dies"]))
def test_what_ends_a_decoder_elsewhere_costs_one_attempt(
    what: str, tmp_path: Path, client: Client
) -> None:
    """It is named with its node; the process of `run` goes on."""
    rows = checked(score(tmp_path, client, what, run_invocation_timeout=3))
    failed = failed_attempts(tmp_path)
    assert len(failed) == 1
    assert failed["Process"].str.startswith("preprocess00").all()
    assert list(failed["Node Id"]) == [1 - int(rows["run"][0].split()[0])]


@pytest.mark.long
def test_a_node_whose_processes_do_not_come_up_is_done_without(
    tmp_path: Path, client: Client
) -> None:
    """Its mini-batches are preprocessed on the node of `run`, and the error is in the logs."""
    rows = checked(score(tmp_path, client, "no codec"))
    assert not any("preprocess" in one for one in rows["pre"])
    assert failed_attempts(tmp_path).empty
    node = str(1 - int(rows["run"][0].split()[0]))
    log = JobFolder(tmp_path / "job").logs / "sys" / "node" / node / "_main.txt"
    assert "no codec" in log.read_text()


@pytest.mark.long
@pytest.mark.parametrize("how", mostly_long(["SIGKILL", "SIGSTOP"], suite=["SIGKILL"]))
def test_a_lost_worker_costs_what_it_held(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is preprocessed again elsewhere, and no attempt is charged."""
    monkeypatch.setattr(stage_calls, "LOOK_EVERY_S", 0.1)
    monkeypatch.setattr(stage_calls, "SILENT_S", 1.0)
    with cluster_of(Nanny) as cluster, Client(cluster, set_as_default=False) as client:
        client.wait_for_workers(2)
        pids = client.run(os.getpid)
        (pid,) = (one for address, one in pids.items() if "127.0.0.2" in address)

        def strike() -> None:
            assert poll_for((tmp_path / "waits").exists, 60)
            os.kill(pid, getattr(signal, how))

        striking = threading.Thread(target=strike)
        striking.start()
        try:
            checked(score(tmp_path, client, "waits", run_invocation_timeout=60))
        finally:
            striking.join()
            os.kill(pid, signal.SIGCONT) if how == "SIGSTOP" else None
        assert failed_attempts(tmp_path).empty


@pytest.mark.long
@pytest.mark.parametrize("what", ["nothing", "waits"])
def test_nodes_that_share_nothing_preprocess_for_each_other(what: str, tmp_path: Path) -> None:
    """The rows, the script and the logs travel; one that is cut off costs what it held."""
    if reason := why_not():
        pytest.skip(reason)
    with ExitStack() as stack:
        nodes = stack.enter_context(separate_nodes(tmp_path / "log", [tmp_path], count=0))
        nodes.start_worker(nodes.add(), "--no-nanny", "--resources", "GPU=1", threads=2)
        nodes.start_worker(nodes.add(), "--no-nanny", threads=2)
        client = stack.enter_context(Client(nodes.address, set_as_default=False))
        client.wait_for_workers(2, timeout=60)
        (there,) = (one for one in nodes.nodes if one.name == "node1")

        def cut() -> None:
            assert poll_for(lambda: stdout_elsewhere(tmp_path), 60)
            nodes.cut(there)

        if what == "waits":
            cutting = threading.Thread(target=cut)
            cutting.start()
            stack.callback(cutting.join)
        variables = {"FOLDER": "/tmp", "WHAT": what}  # noqa: S108 - that of each node
        result = score(tmp_path, client, what, environment_variables=variables)
        assert list(result.to_pandas()["double"]) == [2 * n for n in range(300)]
        assert failed_attempts(tmp_path).empty
        assert stdout_elsewhere(tmp_path)
