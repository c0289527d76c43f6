"""Ctrl-C: Canceled within seconds, nothing left, nothing lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pandas as pd
import psutil
import pytest
from click.testing import CliRunner

import daskprs
from daskprs._cli import main
from daskprs._core.events import JobStarted
from daskprs._folders.job_folder import JobFolder
from daskprs._job.status import state_of
from daskprs._output.journal.history import History
from daskprs._report.listeners import Listeners
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from daskprs._core.events import Event

CLI = [sys.executable, "-m", "daskprs"]
MARK = "DASKPRS_TEST_MARK"
LONGEST_S = 25
"""On a quiet machine it takes one; less than the half minute that shutdown() might have."""
SCRIPT = """
import time
from pathlib import Path

def run(mini_batch):
    for path in mini_batch:
        number = int(Path(path).stem)
        Path({seen!r}, str(number)).touch()
        if number >= 4 and Path({seen!r}, "hang").exists():
            time.sleep(3600)
    return [Path(path).stem for path in mini_batch]
"""


def marked(mark: str) -> list[int]:
    """Return the processes that carry a mark in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != "zombie":
                found.append(process.pid)
        except (psutil.AccessDenied, psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    return found


class Run:
    """A job in a process of its own."""

    def __init__(self, folder: Path, *more: str) -> None:
        self.folder = folder
        self.seen = folder / "seen"
        self.seen.mkdir(exist_ok=True)
        if "--resume" not in more:
            (self.seen / "hang").touch()
        self.mark = str(folder)
        data = folder / "data"
        if not data.exists():
            data.mkdir()
            for number in range(8):
                (data / f"{number}.bin").write_bytes(b"x")
        script = folder / "source" / "script.py"
        script.parent.mkdir(exist_ok=True)
        script.write_text(SCRIPT.format(seen=str(self.seen)))
        command = [
            *CLI,
            "run",
            str(script),
            str(data),
            *("--job-dir", str(folder / "job"), "--output-dir", str(folder / "out")),
            *("--mini-batch-size", "1", "--process-count-per-node", "2", *more),
        ]
        is_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # of the tests themselves
        self.process = subprocess.Popen(
            ["env", "--default-signal=HUP", *command] if is_nohup else command,
            env={**os.environ, MARK: self.mark},
            stderr=subprocess.PIPE,
            text=True,
        )

    def hangs(self, count: int) -> bool:
        """Wait until so many mini-batches were seen."""
        return poll_for(lambda: len(list(self.seen.iterdir())) > count, 60)

    def end(self) -> tuple[int, str]:
        """Return the exit code and what was said."""
        _, said = self.process.communicate(timeout=90)
        return self.process.returncode, said


@pytest.fixture
def clean(tmp_path: Path) -> Iterator[None]:
    """Kill what a failed test has left."""
    yield
    for pid in marked(str(tmp_path)):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGHUP, marks=pytest.mark.long)]
)
def test_an_interrupt_cancels_within_seconds(tmp_path: Path, number: int) -> None:
    """The exit code is 130, no process is left, nothing is published, and it says how to go on."""
    run = Run(tmp_path)
    assert run.hangs(6)
    begun = time.monotonic()
    run.process.send_signal(number)
    code, said = run.end()
    assert code == 130
    assert time.monotonic() - begun < LONGEST_S
    assert "Canceled" in said
    assert "resume" in said
    assert marked(run.mark) == []
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.usefixtures("clean")
def test_sigterm_interrupts_a_job_that_a_resume_completes(tmp_path: Path) -> None:
    """The exit code is 75, nothing is charged, and the bytes are those of an undisturbed run."""
    run = Run(tmp_path)
    assert run.hangs(6)
    assert poll_for(lambda: (tmp_path / "job" / "journal.1").read_bytes().count(b"commit") >= 3)
    run.process.send_signal(signal.SIGTERM)
    code, said = run.end()
    assert code == 75
    assert "The job is Interrupted: SIGTERM has asked it to end." in said
    assert "Mini-batches: 4 of 8 succeeded." in said
    assert f"daskprs resume {tmp_path / 'job'}" in said
    assert marked(run.mark) == []
    assert list((tmp_path / "out").iterdir()) == []
    state = state_of(JobFolder(tmp_path / "job"))
    assert (state.status, state.mini_batches.failed, state.may_go_on) == ("Interrupted", 0, True)
    assert CliRunner().invoke(main, ["result", str(tmp_path / "job")]).exit_code == 75
    (run.seen / "hang").unlink()
    code, said = Run(tmp_path, "--resume").end()
    assert code == 0, said
    assert (tmp_path / "out" / "parallel_run_step.txt").read_text() == "0\n1\n2\n3\n4\n5\n6\n7\n"


@pytest.mark.usefixtures("clean")
def test_sigterm_for_all_processes_of_a_job_is_charged_to_no_mini_batch(tmp_path: Path) -> None:
    """Slurm and systemd send it to all of them, when the time of a job is over."""
    run = Run(tmp_path, "--run-max-try", "1")
    assert run.hangs(6)
    driver = psutil.Process(run.process.pid)
    # Not the process that agents are forked from: its end explains theirs.
    agents = [one for one in driver.children(recursive=True) if not one.children()]
    for process in [driver, *agents]:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    code, said = run.end()
    assert code == 75, said
    assert " of 8 succeeded." in said
    assert state_of(JobFolder(tmp_path / "job")).mini_batches.failed == 0
    assert poll_for(lambda: not marked(run.mark))


@pytest.mark.usefixtures("clean")
def test_a_second_interrupt_ends_it_at_once(tmp_path: Path) -> None:
    """Whatever the first one was still doing."""
    run = Run(tmp_path)
    assert run.hangs(6)
    run.process.send_signal(signal.SIGINT)
    run.process.send_signal(signal.SIGINT)
    code, _ = run.end()
    assert code in (130, 1, -signal.SIGINT)
    assert poll_for(lambda: not marked(run.mark))


@pytest.mark.usefixtures("clean")
def test_a_killed_caller_leaves_no_process_and_a_job_to_resume(tmp_path: Path) -> None:
    """What was committed is not run again, and the bytes are those of an undisturbed run."""
    run = Run(tmp_path)
    assert run.hangs(6)
    assert poll_for(lambda: (tmp_path / "job" / "journal.1").read_bytes().count(b"commit") >= 3)
    run.process.kill()
    run.end()
    assert poll_for(lambda: not marked(run.mark))
    committed = History(JobFolder(tmp_path / "job")).commits.column("index").tolist()
    assert len(committed) >= 3
    for seen in run.seen.iterdir():
        seen.unlink()
    code, said = Run(tmp_path, "--resume").end()
    assert code == 0, said
    assert (tmp_path / "out" / "parallel_run_step.txt").read_text() == "0\n1\n2\n3\n4\n5\n6\n7\n"
    assert {int(seen.name) for seen in run.seen.iterdir()} == {*range(8)} - {*committed}


def test_an_interrupt_while_the_input_is_prepared_is_canceled_too(tmp_path: Path) -> None:
    """With a result that says that nothing was done, and nothing left."""
    frame = pd.DataFrame({"thing": [Interrupter()]}, dtype=object)
    with pytest.raises(daskprs.ParallelRunCanceled, match="before the first mini-batch") as caught:
        daskprs.parallel_run(frame, len, job_dir=tmp_path / "job", progress=False)
    assert "To go on, call it again." in str(caught.value)
    assert caught.value.result is not None
    assert caught.value.result.status == "Canceled"
    assert caught.value.result.mini_batches.total == 0


def test_an_interrupt_as_the_job_starts_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the job would count as one whose driver died."""
    tell = Listeners.tell

    def interrupted(listeners: Listeners, event: Event) -> None:
        tell(listeners, event)
        if isinstance(event, JobStarted):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Listeners, "tell", interrupted)
    one = {"job_dir": tmp_path / "job", "start_method": "inline", "progress": False}
    with pytest.raises(daskprs.ParallelRunCanceled, match="it was interrupted"):
        daskprs.parallel_run(pd.DataFrame({"n": [1]}), len, **one)
    assert state_of(JobFolder(tmp_path / "job")).status == "Canceled"


class Interrupter:
    """Interrupts its second pickling: the first is a sample, when the input is looked at."""

    times = 0

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Do it."""
        type(self).times += 1
        if self.times > 1:
            raise KeyboardInterrupt
        return Interrupter, ()
