"""Drivers that fork, die, or block signals, and scripts that leave threads."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pandas as pd
import psutil
import pytest

import daskprs
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from pathlib import Path

LIMIT_S = 120.0
HEAD = """
import os
import signal
import sys
import time
from pathlib import Path

import pandas as pd

import daskprs

FOLDER = Path(sys.argv[1])


def job(run, name="job", **options):
    return daskprs.parallel_run(
        pd.DataFrame({"n": range(4)}), run, mini_batch_size=1, process_count_per_node=2,
        job_dir=FOLDER / name, progress=False, **options
    )

"""


def driver(folder: Path, story: str) -> subprocess.Popen[str]:
    """Start a driver of its own."""
    command = [sys.executable, "-c", HEAD + textwrap.dedent(story), str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finished(folder: Path, story: str) -> str:
    """Return what a driver printed; one that stands still is killed, and fails the test."""
    process = driver(folder, story)
    try:
        said, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        process.kill()
        said, _ = process.communicate()
        said += "\nit stood still"
    return said


def test_a_job_in_a_fork_of_a_process_that_has_run_one_is_refused(tmp_path: Path) -> None:
    """Dask's threads are not there: it would wait for them for ever."""
    said = finished(
        tmp_path,
        """
        print(job(lambda rows: rows).status, flush=True)
        child = os.fork()
        if child == 0:
            try:
                job(lambda rows: rows, "child")
            except daskprs.UsageError as error:
                print(error, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        """,
    )
    assert said.startswith("Completed\n")
    assert "\nparallel_run: process " in said  # Python 3.12 and newer warn before that
    assert "Dask does not survive a fork. Start a fresh process" in said
    assert not (tmp_path / "child").exists()


@pytest.mark.long
def test_a_stopped_zygote_is_gone_soon_after_its_driver_was_killed(tmp_path: Path) -> None:
    """The kernel continues it, so that it kills its agents and ends."""
    process = driver(
        tmp_path,
        """
        def run(rows):
            (FOLDER / str(os.getppid())).touch()
            time.sleep(3600)
        job(run, run_invocation_timeout=3600)
        """,
    )
    assert poll_for(lambda: any(path.name.isdigit() for path in tmp_path.iterdir()), LIMIT_S)
    number = next(int(path.name) for path in tmp_path.iterdir() if path.name.isdigit())
    zygote = psutil.Process(number)
    family = [zygote, *zygote.children(recursive=True)]
    zygote.suspend()
    process.kill()
    process.communicate()
    gone = poll_for(lambda: all(map(ended, family)), 30.0)
    for one in family:
        if not ended(one):
            one.kill()
    assert gone


def ended(process: psutil.Process) -> bool:
    """Return whether a process has ended, though its parent may not have asked for its code."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.long
def test_agents_of_a_driver_that_blocks_all_signals_are_seen_to_end(tmp_path: Path) -> None:
    """Their ends are told by a signal, and what is inherited would hide them."""
    said = finished(
        tmp_path,
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        def run(rows):
            print(signal.pthread_sigmask(signal.SIG_BLOCK, ()), flush=True)
            return rows
        def dies(rows):
            if rows["n"].iloc[0] == 1 and not (FOLDER / "died").exists():
                (FOLDER / "died").touch()
                os._exit(3)
            return rows
        print(job(run, shutdown_timeout=600).status)
        print(job(dies, "deaths", shutdown_timeout=600).status)
        """,
    )
    assert said == "Completed\nCompleted\n"
    printed = (tmp_path / "job" / "logs" / "user" / "stdout").rglob("*.txt")
    assert {line for log in printed for line in log.read_text().splitlines()} == {"set()"}
    failed = tmp_path / "deaths" / "logs" / "sys" / "job_report" / "processed_mini-batches.csv"
    assert "exits with returncode 3" in failed.read_text()


def test_threads_that_a_script_leaves_are_named_and_its_end_is_bounded(tmp_path: Path) -> None:
    """A job that is done waits for `shutdown_timeout` at most, and says for what."""

    def run(rows: pd.DataFrame) -> pd.DataFrame:
        import threading
        import time

        threading.Thread(target=time.sleep, args=(3600,), name="feeder").start()
        return rows

    result = daskprs.parallel_run(
        pd.DataFrame({"n": [1]}),
        run,
        process_count_per_node=1,
        shutdown_timeout=4,
        job_dir=tmp_path / "job",
        progress=False,
    )
    assert result.status == "Completed"
    errors = (tmp_path / "job" / "logs" / "job_error.txt").read_text()
    assert "waits for threads that the script has left: feeder." in errors
    assert "shutdown_timeout=4 s has passed" in errors
    (log,) = (tmp_path / "job" / "logs" / "user" / "stderr").rglob("*.txt")
    assert "waits for threads that the script has left: feeder." in log.read_text()
