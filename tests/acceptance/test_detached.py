"""A job whose driver the cluster carries: it needs no caller, and outlives the worker it is on."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask
import pandas as pd
import pytest
from click.testing import CliRunner
from distributed import Client, Event, LocalCluster

import daskprs
from daskprs import OptionError, ParallelRunCanceled, ParallelRunFailed
from daskprs._cli import main
from daskprs._folders.job_folder import JobFolder
from daskprs._folders.job_lock import locked
from daskprs._folders.rows_seal import clusters_key
from daskprs._job import detached
from daskprs._job.status import state_of
from daskprs._system.atomic_file import write_json
from daskprs._system.user_key import keyed_digest
from daskprs.errors import JobFolderError, JobFolderLocked
from tests.support.local_servers import LOCAL_SERVERS
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT_S = 100
SQUARES = """
import os, time
from pathlib import Path

def run(rows):
    if int(rows["n"].iloc[0]) >= 3:
        while not Path({gate!r}).exists():
            time.sleep(0.02)
    return [f"{{n}} squared is {{n * n}}" for n in rows["n"]]
"""
NUMBERS = range(8)
WHOLE = "".join(f"{n} squared is {n * n}\n" for n in NUMBERS)


@pytest.fixture
def address() -> Iterator[str]:
    """Yield the address of a cluster of two workers with one thread each."""
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        **LOCAL_SERVERS,
    ) as cluster:
        yield cluster.scheduler_address
    # multiprocessing keeps a process of its own once it has started others.
    resource_tracker._resource_tracker._stop()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a folder with the input and a script that waits for a gate."""
    (tmp_path / "n.csv").write_text("n\n" + "".join(f"{n}\n" for n in NUMBERS))
    (tmp_path / "score").mkdir()
    (tmp_path / "score" / "squares.py").write_text(SQUARES.format(gate=str(tmp_path / "gate")))
    return tmp_path


def submitted(home: Path, address: str | None, **options: Any) -> daskprs.ParallelRunResult:
    """Submit the job: a mini-batch for each number."""
    return daskprs.parallel_run(
        home / "n.csv",
        home / "score" / "squares.py",
        client=address,
        job_dir=home / "job",
        output_dir=home / "out",
        mini_batch_size=2,
        detach=True,
        **options,
    )


def command(*words: str | Path) -> list[str]:
    """Return a command line of daskprs."""
    return [sys.executable, "-m", "daskprs", *map(str, words)]


def driver_of(job: JobFolder) -> int | None:
    """Return the process that is at work in a job folder; None while nobody has said so."""
    found = re.match(r"process (\d+)", state_of(job).holder or "")
    return None if found is None else int(found[1])


def begun(job: JobFolder) -> bool:
    """Say whether the first mini-batches are done, and the others wait for the gate."""
    try:
        return state_of(job).mini_batches.succeeded >= 2
    except JobFolderError:
        return False


def test_a_job_goes_on_without_its_caller(home: Path, address: str) -> None:
    """The call returns while the job runs; whoever sees the folder waits for the result."""
    result = submitted(home, address)
    assert result.status == "Running"
    assert poll_for(lambda: begun(JobFolder(home / "job")), WAIT_S)
    with pytest.raises(TimeoutError, match="still running"):
        daskprs.attach(result.job_dir, 0.1)
    (home / "gate").touch()
    ended = daskprs.attach(result.job_dir, WAIT_S)
    assert ended.status == "Completed"
    assert ended.mini_batches.succeeded == len(NUMBERS)
    assert (home / "out" / "parallel_run_step.txt").read_text() == WHOLE


@pytest.mark.long
def test_the_death_of_the_worker_that_carries_the_driver_moves_it(home: Path, address: str) -> None:
    """It goes on elsewhere with what it had done, and nothing is done twice."""
    submitted(home, address)
    job = JobFolder(home / "job")
    assert poll_for(lambda: begun(job), WAIT_S)
    first = driver_of(job)
    worker = int(Path(f"/proc/{first}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(worker, signal.SIGKILL)
    assert poll_for(lambda: driver_of(job) not in {None, first}, WAIT_S)
    (home / "gate").touch()
    attached = subprocess.run(
        command("attach", home / "job"), capture_output=True, text=True, check=False
    )
    assert attached.returncode == 0, attached.stderr
    assert "<daskprs job Completed>" in attached.stdout
    assert "<daskprs job Completed>" not in attached.stderr
    assert "resumed" in attached.stderr
    assert (home / "out" / "parallel_run_step.txt").read_text() == WHOLE
    assert state_of(job).runs == 2


@pytest.mark.long
def test_a_handle_follows_the_job_past_the_death_of_its_driver(home: Path, address: str) -> None:
    """Each line comes once, in order, from both drivers; the handle is awaited like any other."""
    run = daskprs.start(
        home / "n.csv",
        home / "score" / "squares.py",
        client=address,
        job_dir=home / "job",
        output_dir=home / "out",
        mini_batch_size=2,
        detach=True,
    )
    assert run.status == "Running"
    batches = run.iter_batches()
    lines = [next(batches) for _ in range(3)]
    driver = driver_of(JobFolder(run.job_dir))
    assert driver is not None
    os.kill(driver, signal.SIGKILL)
    (home / "gate").touch()
    assert "".join([*lines, *batches]) == WHOLE

    async def ended() -> daskprs.ParallelRunResult:
        return await run

    assert asyncio.run(ended()).status == run.status == "Completed"
    assert run.progress.mini_batches.succeeded == len(NUMBERS)


@pytest.mark.long
def test_a_handle_cancels_a_detached_job(home: Path, address: str) -> None:
    """It says so as a job of this process does."""
    submitted(home, address)
    run = daskprs.ParallelRun.of(home / "job")
    assert poll_for(lambda: run.progress.mini_batches.succeeded, WAIT_S)
    run.cancel()
    with pytest.raises(ParallelRunCanceled):
        run.result(WAIT_S)
    assert run.status == "Canceled"


@pytest.mark.long
def test_the_death_of_the_driver_alone_starts_another(home: Path, address: str) -> None:
    """On the same worker: what has killed it may not come again."""
    result = submitted(home, address)
    job = JobFolder(home / "job")
    assert poll_for(lambda: begun(job), WAIT_S)
    driver = driver_of(job)
    assert driver is not None
    os.kill(driver, signal.SIGKILL)
    (home / "gate").touch()
    assert daskprs.attach(result.job_dir, WAIT_S).status == "Completed"
    assert (home / "out" / "parallel_run_step.txt").read_text() == WHOLE
    assert "ended with -9 (SIGKILL)" in job.driver_output.read_text()


@pytest.mark.long
def test_a_job_that_is_cancelled_keeps_what_it_has_done(home: Path, address: str) -> None:
    """Submitted again, it does the rest."""
    result = submitted(home, address)
    job = JobFolder(home / "job")
    assert poll_for(lambda: begun(job), WAIT_S)
    assert subprocess.run(command("cancel", home / "job"), check=False).returncode == 0
    with pytest.raises(ParallelRunCanceled, match=r"daskprs resume"):
        daskprs.attach(result.job_dir, WAIT_S)
    done = state_of(job).mini_batches.succeeded
    assert 2 <= done < len(NUMBERS)
    (home / "gate").touch()
    assert daskprs.attach(submitted(home, address, resume=True).job_dir).status == "Completed"
    assert (home / "out" / "parallel_run_step.txt").read_text() == WHOLE


@pytest.mark.long
def test_a_failure_is_raised_where_it_is_waited_for(home: Path, address: str) -> None:
    """With the message that its own caller would have read."""
    (home / "score" / "squares.py").write_text("def run(rows):\n    raise ValueError('no')\n")
    result = submitted(home, address, run_max_try=1)
    with pytest.raises(ParallelRunFailed, match="ValueError: no") as caught:
        daskprs.attach(result.job_dir, WAIT_S)
    assert caught.value.result is not None
    assert caught.value.result.status == "Failed"
    attached = CliRunner().invoke(main, ["attach", str(result.job_dir)])
    assert attached.exit_code == 42
    assert attached.stderr.count(str(caught.value).rstrip()) == 1, attached.stderr


@pytest.mark.long
def test_the_command_line_submits(home: Path, address: str) -> None:
    """It prints where the job is, and leaves; what follows -- goes to the script."""
    (home / "gate").touch()
    words = ("submit", home / "score" / "squares.py", home / "n.csv", "--client", address)
    places = ("--job-dir", home / "job", "--output-dir", home / "out", "--", "--flag")
    done = subprocess.run(command(*words, *places), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "<daskprs job Running>" in done.stdout
    ended = command("attach", home / "job")
    assert subprocess.run(ended, check=False, capture_output=True).returncode == 0
    told = subprocess.run(command("result", home / "job"), check=True, capture_output=True)
    assert b"Completed" in told.stdout
    assert (home / "out" / "parallel_run_step.txt").read_text() == WHOLE


def test_what_only_the_caller_has_cannot_be_left_behind(home: Path, address: str) -> None:
    """The message names it; no folder, since nothing has begun there that could go on."""
    rows = pd.DataFrame({"n": [1]})
    with pytest.raises(
        OptionError, match=r"^a detached job .* the script .*; data, a pandas.*DataFrame"
    ):
        daskprs.parallel_run(
            rows, lambda rows: rows, client=address, job_dir=home / "job", detach=True
        )


def test_a_job_needs_a_cluster_that_lasts(home: Path) -> None:
    """One in the caller's process does not."""
    with pytest.raises(OptionError, match=r"none is named\. Give its address by client"):
        submitted(home, None)
    with (
        LocalCluster(processes=False, **LOCAL_SERVERS) as cluster,
        Client(cluster),
        pytest.raises(OptionError, match="ends with the process"),
    ):
        submitted(home, None)


@pytest.mark.long
def test_a_second_job_in_a_folder_is_refused_before_the_first_one_has_begun(
    home: Path, address: str
) -> None:
    """Its call would take the place of the first one's."""
    with Client(address) as client:
        held = client.map(lambda _: Event("over").wait(WAIT_S), range(2), pure=False)
        submitted(home, address)
        with pytest.raises(JobFolderLocked, match=r"a detached job was submitted .*daskprs attach"):
            submitted(home, address)
        Event("over", client=client).set()
        client.gather(held)
    (home / "gate").touch()
    assert daskprs.attach(home / "job", WAIT_S).status == "Completed"


@pytest.mark.long
def test_a_damaged_record_of_a_submission_is_written_anew(home: Path, address: str) -> None:
    """As its own message says."""
    (home / "job").mkdir(mode=0o700)
    JobFolder(home / "job").detached.write_text("{")
    (home / "gate").touch()
    submitted(home, address)
    assert daskprs.attach(home / "job", WAIT_S).status == "Completed"


@pytest.mark.long
def test_a_folder_that_one_worker_sees_is_refused_unless_it_may_die(home: Path) -> None:
    """With one worker there is nowhere to go on."""
    with LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        **LOCAL_SERVERS,
    ) as cluster:
        with pytest.raises(OptionError, match=r"reached by 1 worker of .* survive=False"):
            submitted(home, cluster.scheduler_address)
        (home / "gate").touch()
        result = submitted(home, cluster.scheduler_address, survive=False)
        assert daskprs.attach(result.job_dir, WAIT_S).status == "Completed"
    resource_tracker._resource_tracker._stop()


def test_cancel_is_for_detached_jobs(tmp_path: Path) -> None:
    """Others end by Ctrl-C; that of a lazy collection is driven by a process of others, too."""
    with pytest.raises(JobFolderError, match="no detached job"):
        daskprs.cancel(tmp_path)
    folder = JobFolder(tmp_path)
    with locked(folder):
        with pytest.raises(JobFolderError, match=r"cancel it: process \d+ on .*Send that process"):
            daskprs.cancel(tmp_path)
        folder.collection.touch()
        with pytest.raises(JobFolderError, match="Interrupt the program that computes"):
            daskprs.cancel(tmp_path)


@pytest.mark.attack
def test_the_cluster_that_another_user_has_named_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its scheduler could answer with a pickle. One's own is asked, in a shared folder, too."""
    monkeypatch.setattr(detached, "GAP_S", -1.0)
    address = "tcp://127.0.0.1:1"
    folder = JobFolder(tmp_path)
    record = {"address": address, "task": "driver", "epochs_before": 0, "options": {}}
    of_another = keyed_digest(address, b"the key of another user")
    for seal, why in (
        (None, f"its cluster, {address}, is not asked: another user may"),
        (of_another, "is not asked"),
        (keyed_digest("tcp://elsewhere:1", clusters_key()), "is not asked"),
        (keyed_digest(address, clusters_key()), "cannot be reached"),
    ):
        write_json(folder.detached, {**record, "seal": seal})
        soon = dask.config.set({"distributed.comm.timeouts.connect": "0.1s"})
        with soon, pytest.raises(JobFolderError, match=why):
            daskprs.attach(tmp_path)
