"""Child processes: canceled by one signal, killed after a grace, bound, supervised or left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil

from daskprs._system.child_process import ChildProcess
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from pathlib import Path

SLEEPS = "import time; print('begun', flush=True); time.sleep(600)"
IGNORES = "import signal; signal.signal(signal.SIGTERM, lambda *_: print('asked', flush=True))"
BOUND = """
import os, sys, time
from daskprs._system.child_process import ChildProcess
with open("output", "ab") as output:
    program = [sys.executable, "-c", sys.argv[1]]
    child = ChildProcess(program, output, is_supervised=bool(sys.argv[2]))
print(child.pid, flush=True)
time.sleep(600)
"""


def started(folder: Path, program: str) -> tuple[ChildProcess, Path]:
    """Return a process that has written its first line, and the file of its output."""
    path = folder / "output"
    with path.open("ab") as output:
        process = ChildProcess([sys.executable, "-c", program], output)
    assert poll_for(path.read_text)
    return process, path


def test_a_process_is_canceled_even_where_ctrl_c_is_ignored(tmp_path: Path) -> None:
    """Shells start programs in the background with SIGINT ignored, and children inherit that."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process, _ = started(tmp_path, SLEEPS)
    finally:
        signal.signal(signal.SIGINT, before)
    process.cancel()
    assert poll_for(lambda: process.poll() == -signal.SIGTERM)


def test_each_cancel_sends_a_signal_and_the_first_one_counts_for_the_grace(tmp_path: Path) -> None:
    """A second Ctrl-C in a pipeline reaches its steps, too."""
    process, output = started(tmp_path, f"{IGNORES}; {SLEEPS}")
    process.cancel(grace_s=1.0)
    assert poll_for(lambda: output.read_text().count("asked") == 1)
    process.cancel(grace_s=600.0)
    assert process.poll() is None
    assert poll_for(lambda: process.poll() == -signal.SIGKILL)
    assert output.read_text().count("asked") == 2


def test_a_supervised_process_ends_with_who_started_it_and_another_outlives_it(
    tmp_path: Path,
) -> None:
    """The supervisor notices the end of its starter, however that ends."""
    for is_supervised in ("supervised", ""):
        starter = subprocess.Popen(
            [sys.executable, "-c", BOUND, SLEEPS, is_supervised],
            stdout=subprocess.PIPE,
            cwd=tmp_path,
        )
        assert starter.stdout is not None
        child = psutil.Process(int(starter.stdout.readline()))
        starter.kill()
        starter.communicate()
        if is_supervised:
            assert poll_for(lambda child=child: not child.is_running() or _is_zombie(child))
        else:
            assert child.is_running()
            child.kill()


def test_what_a_supervised_process_leaves_in_the_background_may_end(tmp_path: Path) -> None:
    """Its last lines are kept; what does not end by itself is killed."""
    line = "while kill -0 $$ 2>/dev/null; do sleep 0.01; done; echo last"
    path = tmp_path / "output"
    with path.open("ab") as output:
        program = ["bash", "-c", f"({line}) & sleep 600 & echo $!"]
        process = ChildProcess(program, output, is_supervised=True)
    assert poll_for(lambda: process.poll() == 0)
    sleeper, last, killed = path.read_text().splitlines()
    assert last == "last"
    assert killed.startswith("daskprs: killed 1 process that the command had left in the backgr")
    assert not psutil.pid_exists(int(sleeper))


def _is_zombie(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_process_that_is_left_goes_on(tmp_path: Path) -> None:
    """Nothing warns of it."""
    process, _ = started(tmp_path, SLEEPS)
    pid = process.pid
    process.leave()
    del process
    assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
