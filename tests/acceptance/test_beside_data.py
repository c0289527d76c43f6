"""Scripts beside data: large files are linked, logs are no change, and files are found."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import pandas as pd
import pytest
from distributed import Client, LocalCluster

import daskprs
from daskprs._agent.script.snapshot import LARGEST_BYTES, LINKED_BYTES
from daskprs._lazy import task_agents
from daskprs.errors import JobChanged, ParallelRunFailed, ScriptError
from tests.support.cases import mostly_long
from tests.support.local_servers import LOCAL_SERVERS
from tests.support.separate_nodes import separate_nodes, why_not

pytestmark = pytest.mark.usefixtures("inline")

SEEN_BY_NODES = "/var/tmp"  # noqa: S108 - a folder of its own is made there
PYTHONS = [
    None,
    pytest.param(sys.executable, marks=[pytest.mark.processes, pytest.mark.long], id="another"),
]
ROWS = pd.DataFrame({"n": [1, 2]})
READING = """
from pathlib import Path

MODEL = Path(__file__).parent / "data" / "model.bin"

def run(rows):
    with MODEL.open("rb") as file:
        head = file.read(5)
    return [head.decode(), MODEL.stat().st_size]
"""


def put_model(folder: Path, size: int) -> Path:
    """Write a file beside a script, without blocks of a disk but the first."""
    model = folder / "data" / "model.bin"
    model.parent.mkdir(parents=True)
    model.write_bytes(b"model")
    os.truncate(model, size)
    return model


def written(folder: Path, size: int, text: str = READING) -> Path:
    """Return a script with a model of a size beside it."""
    put_model(folder, size)
    (folder / "score.py").write_text(text)
    return folder / "score.py"


def results(data: Any, script: Any, **options: Any) -> list[Any]:
    """Return what the script returns."""
    result = daskprs.parallel_run(data, script, progress=False, **options)
    return list(result.to_pandas(ignore_index=True)["result"])


@pytest.mark.processes
@pytest.mark.parametrize("python", mostly_long([None, sys.executable], suite=[None]))
def test_a_script_may_lie_beside_a_file_too_large_to_travel(
    tmp_path: Path, python: str | None
) -> None:
    """Nodes that see it get a link: no job folder has a copy of it, also not of a failed job."""
    script = written(tmp_path / "code", 2 * LARGEST_BYTES)
    job = tmp_path / "job"
    options = {"job_dir": job, "retain": "all", "python": python}
    found = results(ROWS, script, **options)
    assert [*map(str, found)] == ["model", str(2 * LARGEST_BYTES)]
    (link,) = job.glob("snapshot/*/data/model.bin")
    assert link.is_symlink()
    assert link.samefile(tmp_path / "code/data/model.bin")


@pytest.mark.processes
def test_processes_of_a_cluster_that_see_the_folder_get_links(tmp_path: Path) -> None:
    """Also when the file has grown since the job began."""
    script = written(tmp_path / "code", 2 * LARGEST_BYTES)
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, **LOCAL_SERVERS) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        found = results(ROWS, script, client=client, job_dir=tmp_path / "job")
    assert [*map(str, found)] == ["model", str(2 * LARGEST_BYTES)]


@pytest.mark.long
@pytest.mark.processes
def test_nodes_that_do_not_see_the_folder_are_sent_what_may_travel(tmp_path: Path) -> None:
    """Whole files within the limit; above it the job is refused, with the file and what to do."""
    if reason := why_not():
        pytest.skip(reason)
    small = written(tmp_path / "small", LINKED_BYTES + 1)
    large = written(tmp_path / "large", 2 * LARGEST_BYTES)
    hidden = [tmp_path / "small", tmp_path / "large"]
    with (
        separate_nodes(tmp_path / "log", hidden, count=1, threads=1) as nodes,
        Client(nodes.address, set_as_default=False) as client,
    ):
        found = results(ROWS, small, client=client, job_dir=tmp_path / "one")
        assert [*map(str, found)] == ["model", str(LINKED_BYTES + 1)]
        with pytest.raises((ScriptError, ParallelRunFailed), match=r"model\.bin \(600\.0 MiB\)"):
            results(ROWS, large, client=client, job_dir=tmp_path / "two")


@pytest.mark.long
@pytest.mark.processes
def test_nodes_that_see_the_script_alone_link_to_its_large_files(tmp_path: Path) -> None:
    """They do not see the job folder, which is in the folder of temporary files."""
    if reason := why_not():
        pytest.skip(reason)
    with (
        tempfile.TemporaryDirectory(dir=SEEN_BY_NODES) as seen,
        separate_nodes(tmp_path / "log", [tmp_path], count=1, threads=1) as nodes,
        Client(nodes.address, set_as_default=False) as client,
    ):
        script = written(Path(seen), 2 * LARGEST_BYTES)
        found = results(ROWS, script, client=client, job_dir=tmp_path / "job")
    assert [*map(str, found)] == ["model", str(2 * LARGEST_BYTES)]


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.processes
def test_a_lazy_collection_has_a_script_beside_a_large_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, committed: bool
) -> None:
    """Its tasks link to the file, which is too large for their graph."""
    monkeypatch.setattr(task_agents, "LINGER_S", 0.3)  # agents of this process end soon
    script = written(tmp_path / "code", 2 * LARGEST_BYTES)
    where = {"job_dir": tmp_path / "job"} if committed else {}
    data = dd.from_pandas(ROWS, npartitions=1)
    options = {"committed": committed, "collection": "bag", **where}
    bag = daskprs.map_batches(data, script, **options)
    assert [*map(str, bag.compute(scheduler="sync"))] == ["model", str(2 * LARGEST_BYTES)]


WAITING = """
from pathlib import Path

def run(rows):
    if not Path({flag!r}).exists() and 2 in list(rows["n"]):
        raise ValueError("not yet")
    return rows
"""
RESUMED = {"run_max_try": 1, "mini_batch_size": 1, "process_count_per_node": 1}


def failed_once(tmp_path: Path, size: int) -> Path:
    """Run a job of which a half fails, and return its script."""
    flag = tmp_path / "flag"
    script = written(tmp_path / "code", size, WAITING.format(flag=str(flag)))
    for name in ("server.log", "nohup.out", ".ipynb_checkpoints/score-checkpoint.ipynb"):
        (script.parent / name).parent.mkdir(exist_ok=True)
        (script.parent / name).write_text("one")
    with pytest.raises(ParallelRunFailed):
        daskprs.parallel_run(ROWS, script, job_dir=tmp_path / "job", progress=False, **RESUMED)
    flag.touch()
    return script


def resumed(tmp_path: Path, script: Path) -> pd.DataFrame:
    """Go on with the job."""
    options = {"job_dir": tmp_path / "job", "progress": False, "resume": True, **RESUMED}
    return daskprs.parallel_run(ROWS, script, **options).to_pandas()


@pytest.mark.processes
def test_logs_beside_the_script_are_no_change(tmp_path: Path) -> None:
    """A server goes on writing, and a notebook is saved; new checkpoints may be modules."""
    script = failed_once(tmp_path, 5)
    for name in ("server.log", "nohup.out", ".ipynb_checkpoints/score-checkpoint.ipynb"):
        (script.parent / name).write_text("one and two")
    (script.parent / "new.log").touch()
    (script.parent / ".ipynb_checkpoints/score-checkpoint.py").touch()
    pd.testing.assert_frame_equal(resumed(tmp_path, script), ROWS)


def test_a_large_file_that_has_changed_refuses_a_resume(tmp_path: Path) -> None:
    """It is known by its size and time: what is done was made with another one."""
    script = failed_once(tmp_path, LINKED_BYTES + 1)
    model = script.parent / "data/model.bin"
    os.utime(model, ns=(0, model.stat().st_mtime_ns + 1))
    with pytest.raises(JobChanged, match=r"data/model\.bin has changed"):
        resumed(tmp_path, script)


@pytest.mark.processes
def test_a_source_directory_at_another_place_is_linked_anew(tmp_path: Path) -> None:
    """The same files, copied with their times: the old place may be gone."""
    script = failed_once(tmp_path, LINKED_BYTES + 1)
    moved = script.parent.rename(tmp_path / "moved")
    text = (moved / "score.py").read_text()
    (moved / "score.py").write_text(text)
    options = {"job_dir": tmp_path / "job", "progress": False, "resume": True, **RESUMED}
    rows = daskprs.parallel_run(ROWS, moved / "score.py", retain="all", **options).to_pandas()
    pd.testing.assert_frame_equal(rows, ROWS)
    links = [*(tmp_path / "job").glob("snapshot/*/data/model.bin")]
    assert any(link.samefile(moved / "data/model.bin") for link in links if link.exists())


MISSING = """
def run(rows):
    with open("data/model.bin") as file:
        return [file.read()]
"""


@pytest.mark.parametrize("python", PYTHONS)
def test_a_file_beside_the_script_is_found_by_what_the_error_says(
    tmp_path: Path, python: str | None
) -> None:
    """The working directory is one of the process."""
    script = written(tmp_path / "code", 5, MISSING)
    says = (
        r"No such file or directory: 'data/model\.bin'\. data/model\.bin lies beside the script, "
        r"but the working directory is /.*process000.*\. "
        r"Write Path\(__file__\)\.parent / 'data/model\.bin'\."
    )
    options = {"job_dir": tmp_path / "job", "python": python, "run_max_try": 1}
    with pytest.raises(ParallelRunFailed, match=says):
        daskprs.parallel_run(ROWS, script, progress=False, **options)


def test_a_file_in_the_folder_of_a_notebook_is_found_by_what_the_error_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its functions are in no file, and it is started in its folder."""
    (tmp_path / "model.bin").write_text("2")
    monkeypatch.chdir(tmp_path)

    def run(rows: pd.DataFrame) -> list[str]:
        return [Path("model.bin").read_text()] * len(rows)

    says = rf"model\.bin lies in {tmp_path}, but the .* Write Path\('{tmp_path}'\) / 'model\.bin'\."
    with pytest.raises(ParallelRunFailed, match=says):
        daskprs.parallel_run(ROWS, run, run_max_try=1, start_method="inline", progress=False)


def test_a_file_that_is_nowhere_gets_no_advice(tmp_path: Path) -> None:
    """Only what lies beside the script is named."""
    script = written(tmp_path / "code", 5, MISSING.replace("model.bin", "other.bin"))
    with pytest.raises(ParallelRunFailed) as caught:
        daskprs.parallel_run(ROWS, script, job_dir=tmp_path / "job", run_max_try=1, progress=False)
    assert "beside the script" not in str(caught.value)
