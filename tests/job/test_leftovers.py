"""What a Completed job leaves: what later calls need, and nothing that only its agents did."""

from __future__ import annotations

import errno
import subprocess
import sys
from itertools import product
from typing import TYPE_CHECKING, Any

import dask
import dask.dataframe as dd
import pandas as pd
import pytest

import daskprs
from daskprs._folders.job_folder import JobFolder
from daskprs._job import leftovers
from daskprs._job.leftovers import drop_leftovers
from daskprs._system.disk_space import used_bytes
from tests.support.cases import mostly_long
from tests.support.local_servers import LOCAL_SERVERS
from tests.support.versions import TEXT

if TYPE_CHECKING:
    from pathlib import Path

FRAME = pd.DataFrame(
    {"n": range(40), "town": pd.Series(["Lima", "Oslo"] * 20, dtype=TEXT).array},
    index=range(100, 140),
)
KEPT = {"epoch.1", "job.json", "journal.1", "labels.1", "lock", "logs", "output", "salt", "typed.1"}
SCRIPT = "def run(rows):\n    return rows[rows['n'] % 2 == 0]\n"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Return a script in a folder of its own."""
    (tmp_path / "source").mkdir()
    path = tmp_path / "source" / "halve.py"
    path.write_text(SCRIPT)
    return path


def run(data: Any, script: Any, folder: Path, **options: Any) -> daskprs.ParallelRunResult:
    """Run a job in two processes."""
    given = {"process_count_per_node": 2, "progress": False, "job_dir": folder}
    return daskprs.parallel_run(data, script, **(given | options))


def names(folder: Path) -> set[str]:
    """Return what lies in a folder."""
    return {path.name for path in folder.iterdir()}


def collection() -> Any:
    """Return the rows as a collection of known token, with labels."""
    return dd.from_pandas(FRAME, npartitions=3)


@pytest.mark.parametrize("cut", [{"mini_batch_size": 200}, {"partition_keys": "town"}], ids=str)
def test_a_completed_job_keeps_rows_logs_and_journal(
    cut: dict[str, Any], script: Path, tmp_path: Path
) -> None:
    """The frame, its rows by key and the snapshot go."""
    result = run(FRAME, script, tmp_path / "job", **cut)
    assert names(tmp_path / "job") == KEPT
    halves = FRAME[FRAME["n"] % 2 == 0]
    pd.testing.assert_frame_equal(result.to_pandas().sort_index(), halves)
    log = JobFolder(tmp_path / "job").master_log.read_text()
    assert "|INFO|" in log
    assert "removed what was written for the agents, " in log


def test_all_of_it_stays_where_the_call_says_so_or_something_failed(
    script: Path, tmp_path: Path
) -> None:
    """A job that is Completed with failures is looked into, and goes on."""
    run(FRAME, script, tmp_path / "all", retain="all")
    everything = KEPT | {"scratch", "snapshot", "work"}
    assert names(tmp_path / "all") == everything
    with dask.config.set({"daskprs.retain": "all"}):
        run(FRAME, script, tmp_path / "site")
    assert names(tmp_path / "site") == everything
    script.write_text("def run(rows):\n    return 1 / (39 not in set(rows['n'])) * rows[['n']]\n")
    result = run(FRAME, script, tmp_path / "failed", mini_batch_size=200, allowed_failed_count=1)
    assert result.mini_batches.failed == 1
    assert names(tmp_path / "failed") == everything | {"failed.parquet"}
    script.write_text(SCRIPT)
    run(FRAME, script, tmp_path / "failed", mini_batch_size=200, resume="failed")
    left = names(tmp_path / "failed")
    assert not left & {"scratch", "snapshot", "work", "failed.parquet"}


@pytest.mark.parametrize(
    ("kind", "how"),
    mostly_long(
        product(
            ["frame", "keys", "collection", "keys of a collection"], [True, "extend", "failed"]
        ),
        suite=[("frame", "extend"), ("keys", True), ("keys of a collection", "failed")],
    ),
)
def test_a_job_goes_on_from_what_is_left(how: Any, kind: str, script: Path, tmp_path: Path) -> None:
    """Nothing runs twice, and labels are those of the frame."""
    data = collection if "collection" in kind else lambda: FRAME
    cut = {"partition_keys": "town"} if "keys" in kind else {}
    first = run(data(), script, tmp_path / "job", **cut).to_pandas()
    script.write_text("def run(rows):\n    raise RuntimeError('it runs again')\n")
    again = run(data(), script, tmp_path / "job", resume=how, accept_changes="script", **cut)
    pd.testing.assert_frame_equal(again.to_pandas(), first)
    assert set(first.index) == set(FRAME.index[::2])
    assert not names(tmp_path / "job") & {"snapshot", "work", "dropped"}


@pytest.mark.usefixtures("inline")
def test_new_keys_are_run_after_the_old_ones_were_tidied_up(script: Path, tmp_path: Path) -> None:
    """The rows of the new frame are brought together anew."""
    run(FRAME, script, tmp_path / "job", partition_keys="town")
    more = pd.concat(
        [FRAME, pd.DataFrame({"n": [2], "town": "Cuzco"}, index=[7]).astype(FRAME.dtypes)]
    )
    result = run(more, script, tmp_path / "job", partition_keys="town", resume="extend")
    assert result.mini_batches == (3, 3, 0)
    assert 7 in result.to_pandas().index


@pytest.mark.usefixtures("inline")
def test_a_resume_removes_the_rows_of_keys_of_earlier_drivers(script: Path, tmp_path: Path) -> None:
    """Each driver writes all rows to files of its own, which would fill the disk otherwise."""
    script.write_text("def run(rows):\n    raise ValueError\n")
    made = set()
    for _ in range(2):
        with pytest.raises(daskprs.ParallelRunFailed):
            run(FRAME, script, tmp_path / "job", partition_keys="town", resume=True)
        (file,) = (tmp_path / "job" / "scratch").glob("keyed.*")
        made.add(file.name)
    assert len(made) == 2


@pytest.mark.long
def test_the_command_line_goes_on_by_the_folder_alone(script: Path, tmp_path: Path) -> None:
    """The saved call names the script itself, not its snapshot."""
    FRAME.to_csv(tmp_path / "in.csv", index=False)
    words = [str(script), str(tmp_path / "in.csv"), "--job-dir", str(tmp_path / "job"), "--quiet"]
    program = [sys.executable, "-m", "daskprs"]
    subprocess.run([*program, "run", *words], check=True)
    assert names(tmp_path / "job") == KEPT - {"labels.1", "typed.1"}
    for command in ("resume", "retry-failed"):
        subprocess.run([*program, command, str(tmp_path / "job"), "--retain", "all"], check=True)
    assert (tmp_path / "job" / "snapshot").exists()


def test_a_committed_collection_reads_its_rows_from_what_is_left(
    script: Path, tmp_path: Path
) -> None:
    """Also in another computation, which finds the partitions as the job has cut them."""
    lazy = daskprs.map_batches(
        collection(), script, schema=FRAME[:0], committed=True, job_dir=tmp_path / "job"
    )
    with dask.config.set(scheduler="threads"):
        from distributed import Client

        with Client(processes=False, n_workers=1, threads_per_worker=2, **LOCAL_SERVERS):
            first = lazy.compute()
            assert not names(tmp_path / "job") & {"snapshot", "work"}
            assert lazy.partitions[1].compute()["n"].tolist() == [14, 16, 18, 20, 22, 24, 26]
            pd.testing.assert_frame_equal(lazy.compute(), first)


STRIKER = """
import os, shutil, sys
from pathlib import Path

from daskprs._folders.job_folder import JobFolder
from daskprs._job.leftovers import drop_leftovers

base, left = Path(sys.argv[1]), 10_000


def strike(event, _arguments):
    global left
    if event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree"):
        left -= 1
        if left == 0:
            os._exit(9)


sys.addaudithook(strike)
for step in range(1, 1000):
    folder = shutil.copytree(base, base.with_name(str(step)))
    child = os.fork()
    if not child:
        left = step
        drop_leftovers(JobFolder(folder))
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
        break
"""


def test_a_driver_that_dies_while_it_tidies_up_leaves_a_snapshot_whole_or_none(
    tmp_path: Path,
) -> None:
    """At whatever step: a resume takes a snapshot that is there for a whole one."""
    base = JobFolder(tmp_path / "base")
    files = [
        base.snapshot / "digest" / "a.py",
        base.snapshot / "digest" / "b.py",
        base.work(0, "process000") / "mine",
        base.scratch / "frame.arrow",
        base.scratch / "partitions.jsonl",
    ]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("content")
    subprocess.run([sys.executable, "-c", STRIKER, str(base)], check=True, timeout=120)
    steps = [path for path in tmp_path.iterdir() if path.name.isdecimal()]
    assert len(steps) > 10
    for path in steps:
        folder = JobFolder(path)
        snapshot = folder.snapshot / "digest"
        assert not snapshot.exists() or names(snapshot) == {"a.py", "b.py"}
        drop_leftovers(folder)
        assert [one for one in path.rglob("*") if one.is_file()] == [
            folder.scratch / "partitions.jsonl"
        ]
        assert names(path) == {"scratch"}


def test_a_job_whose_driver_died_while_it_tidied_up_is_completed_and_goes_on(
    script: Path, tmp_path: Path
) -> None:
    """The next driver removes what is left."""
    program = f"""
import sys, os, pandas as pd, daskprs
sys.addaudithook(
    lambda event, arguments: event == "os.rmdir" and "dropped" in str(arguments) and os._exit(9)
)
frame = pd.read_pickle(sys.argv[1])
daskprs.parallel_run(frame, {str(script)!r}, job_dir={str(tmp_path / "job")!r}, progress=False,
    process_count_per_node=1)
"""
    FRAME.to_pickle(tmp_path / "frame")
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "frame")], check=False, timeout=120
    )
    assert done.returncode == 9
    assert "dropped" in names(tmp_path / "job")
    assert daskprs.ParallelRun.of(tmp_path / "job").status == "Completed"
    result = run(FRAME, script, tmp_path / "job", resume=True)
    assert len(result.to_pandas()) == len(FRAME) / 2
    assert not names(tmp_path / "job") & {"dropped", "scratch", "snapshot", "work"}


@pytest.mark.usefixtures("inline")
def test_what_cannot_be_removed_is_a_warning_and_the_job_is_completed(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named, and the output stands."""

    def fail(path: Path) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy", str(path))

    monkeypatch.setattr(leftovers, "remove_tree", fail)
    result = run(FRAME, script, tmp_path / "job")
    assert result.status == "Completed"
    log = JobFolder(tmp_path / "job").master_log.read_text()
    assert "|WARNING|" in log
    assert f"{tmp_path / 'job' / 'dropped'}" in log


def test_disk_space_counts_neither_links_nor_second_names(tmp_path: Path) -> None:
    """What a removal would free."""
    outside = tmp_path / "outside"
    outside.write_bytes(bytes(1 << 20))
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link").symlink_to(outside)
    (inside / "name").hardlink_to(outside)
    with (inside / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    assert used_bytes(inside) < 1 << 16
    (inside / "own").write_bytes(b"x" * (1 << 20))
    assert 1 << 20 <= used_bytes(inside) < (1 << 20) + (1 << 16)
