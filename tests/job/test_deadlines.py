"""A job whose time is over is Interrupted; a resume does the rest."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

import daskprs
from daskprs import ParallelRunInterrupted
from daskprs._core import lease_sizes
from daskprs._core.ending import JobStatus
from daskprs._folders.job_folder import JobFolder
from daskprs._job import status
from daskprs._job.known_end import KnownEnd
from daskprs._job.status import state_of
from daskprs._options.run_options import RunOptions
from daskprs._system.batch_system import BEFORE_S, SLURM
from daskprs._system.interrupts import CANCEL_FILES
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS = pd.DataFrame({"n": range(8)})
ONE_ROW = 8
"""The bytes of a mini-batch of one row."""


def job(folder: Path, run: Callable[[Any], Any], **options: Any) -> Any:
    """Run a job of eight mini-batches."""
    options = {"mini_batch_size": ONE_ROW, "progress": False, **options}
    return daskprs.parallel_run(
        ROWS, run, job_dir=folder / "job", output=folder / "n.csv", **options
    )


@pytest.mark.usefixtures("inline")
def test_a_job_is_interrupted_before_its_deadline_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file has the rows of an undisturbed run, and nothing ran twice."""

    def run(rows: Any) -> Any:
        with (tmp_path / "seen").open("a") as seen:
            seen.write(f"{rows['n'].iloc[0]} ")
        time.sleep(0.01)
        return rows

    def seen() -> list[str]:
        return (tmp_path / "seen").read_text().split()

    monkeypatch.setattr(lease_sizes, "MARGIN", 1e9)  # an hour is near then
    with pytest.raises(ParallelRunInterrupted, match="nothing more fits before its") as caught:
        job(tmp_path, run, deadline="1h")
    result = caught.value.result
    assert result.status == JobStatus.INTERRUPTED == state_of(JobFolder(tmp_path / "job")).status
    assert 0 < result.mini_batches.succeeded == len(seen()) < len(ROWS)
    assert result.mini_batches.failed == 0
    assert not (tmp_path / "n.csv").exists()
    done = job(tmp_path, run, resume=True)
    assert done.status == "Completed"
    assert seen() == [*"01234567"]
    assert pd.read_csv(tmp_path / "n.csv").equals(ROWS)


@pytest.mark.parametrize("again", [{"program": "rm", "deadline": None}, ["deadline"], "deadline"])
def test_a_folder_of_anybody_adds_nothing_but_options_to_a_command(again: object) -> None:
    """The words to resume its job are pasted into a terminal."""
    history: Any = SimpleNamespace(ended={"reason": "late", "again": again})
    reason, options = status._why(history)
    assert reason == "late"
    assert options == ({"deadline": None} if isinstance(again, dict) else {})


@pytest.mark.usefixtures("inline")
def test_a_deadline_that_has_passed_begins_nothing(tmp_path: Path) -> None:
    """It is no mistake: the input may have taken that long."""
    with pytest.raises(ParallelRunInterrupted, match="Mini-batches: 0 of"):
        job(tmp_path, lambda rows: rows, deadline="2001-01-31T06:30")


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("wish", [False, True])
def test_sigterm_is_no_wish_to_cancel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, wish: bool
) -> None:
    """Who cancels a job by it makes a file first. The handler is gone with the job."""
    monkeypatch.setenv(CANCEL_FILES, f"/nowhere\n{tmp_path / 'cancel'}")
    if wish:
        (tmp_path / "cancel").touch()

    def run(rows: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)
        return rows

    kind = daskprs.ParallelRunCanceled if wish else ParallelRunInterrupted
    with pytest.raises(kind):
        job(tmp_path, run)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_sigterm_lets_agents_finish_what_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end is some seconds away then; a second one ends the job at once."""
    heard, hear = list[bool](), KnownEnd.hear_sigterm
    monkeypatch.setattr(KnownEnd, "hear_sigterm", lambda end: heard.append(hear(end)) or heard[-1])

    def run(rows: Any) -> Any:
        number = int(rows["n"].iloc[0])
        (tmp_path / f"seen{number}").touch()
        time.sleep(3600 if number > 2 else 0)
        return rows

    def strike() -> None:
        assert poll_for((tmp_path / "seen3").exists, 150)  # it waits for the cluster, too
        os.kill(os.getpid(), signal.SIGTERM)
        assert poll_for(lambda: heard)  # two signals at the same time would be one
        os.kill(os.getpid(), signal.SIGTERM)

    striking = threading.Thread(target=strike)
    striking.start()
    with pytest.raises(ParallelRunInterrupted, match="SIGTERM has asked it to end"):
        job(tmp_path, run, process_count_per_node=1)
    striking.join()
    assert heard == [True, False]


def test_the_end_of_a_batch_job_is_that_of_a_job_without_a_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Unless the call wants none; SIGTERM only brings an end nearer."""
    monkeypatch.setenv(SLURM, str(int(time.time()) + 7200))
    left_s = (KnownEnd(RunOptions())().at_s or 0) - time.monotonic()
    assert 7200 - BEFORE_S - 60 < left_s <= 7200 - BEFORE_S
    assert KnownEnd(RunOptions(deadline="never"))().at_s is None
    end = KnownEnd(RunOptions(deadline="1s"))
    before = end()
    assert (end.hear_sigterm(), end.hear_sigterm()) == (True, False)
    assert end() == before._replace(by_signal=True)
