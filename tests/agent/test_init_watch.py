"""An `init` that does nothing is found, and one that works or waits for another one is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pandas as pd
import pytest

import daskprs
from daskprs._agent.supervision import init_watch
from daskprs._agent.supervision.init_watch import InitWatch
from daskprs._system.process_tree import TreeWork, tree_work
from tests.support.polling import poll_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TIMEOUT_S = 200.0
NOTHING = TreeWork((1,), 0.0, 100, waits_for_disk=False)


class Scene:
    """A node with an `init` on a clock that is set by hand."""

    def __init__(self, folder: Path) -> None:
        self.now_s = 1000.0
        self.work = NOTHING
        self.log = folder / "stdout.txt"
        self.log.touch()
        self.sign = folder / "node" / ".init"
        self.watch = self.another()

    def another(self) -> InitWatch:
        """Return the watch over another `init` of the node."""
        return InitWatch(1, [str(self.log), "/nowhere"], self.sign, TIMEOUT_S)

    def idle_after(self, most_s: float, does: Callable[[float], None] = lambda _: None) -> float:
        """Return the seconds after which the `init` is idle, looking each second."""
        began_s = self.now_s
        while self.now_s - began_s < most_s:
            does(self.now_s - began_s)
            if self.watch.is_idle():
                break
            self.now_s += 1
        return self.now_s - began_s


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Return a node on whose clock nothing passes by itself."""
    made = Scene(tmp_path)
    monkeypatch.setattr(init_watch, "tree_work", lambda _: made.work)
    monkeypatch.setattr(init_watch, "time", SimpleNamespace(monotonic=lambda: made.now_s))
    made.watch = made.another()
    return made


def test_an_init_without_any_work_is_idle_after_its_timeout(scene: Scene) -> None:
    """Threads that look around now and then are no work."""

    def does(at_s: float) -> None:
        scene.work = NOTHING._replace(cpu_s=0.009 * at_s)

    assert TIMEOUT_S <= scene.idle_after(1000, does) <= TIMEOUT_S + 2 * TIMEOUT_S / init_watch.LOOKS


@pytest.mark.parametrize(
    "change",
    [
        lambda scene, at_s: scene.work._replace(cpu_s=0.02 * at_s),
        lambda scene, at_s: scene.work._replace(moved_bytes=int(at_s / 100)),
        lambda scene, at_s: scene.work._replace(pids=(1, int(at_s / 100))),
        lambda scene, at_s: scene.work._replace(waits_for_disk=at_s % 100 < 15),
    ],
    ids=["processor", "bytes", "processes", "disk"],
)
def test_an_init_that_works_now_and_then_is_not_idle(
    scene: Scene, change: Callable[[Scene, float], TreeWork]
) -> None:
    """Whatever it does: compute, load, start programs, or wait for a mount."""

    def does(at_s: float) -> None:
        scene.work = change(scene, at_s)

    assert scene.idle_after(1500, does) == 1500


def test_an_init_that_prints_is_not_idle(scene: Scene) -> None:
    """A line now and then is enough."""

    def does(at_s: float) -> None:
        scene.log.write_text("." * int(at_s / 100))

    assert scene.idle_after(1000, does) == 1000


def test_an_init_may_wait_for_another_one_of_its_node(scene: Scene) -> None:
    """As long as that works; two that wait for each other do nothing."""
    downloading = scene.another()

    def does(at_s: float) -> None:
        quiet, scene.work = scene.work, NOTHING._replace(moved_bytes=int(min(at_s, 500)))
        assert not downloading.is_idle() or at_s >= 500 + TIMEOUT_S
        scene.work = quiet

    took_s = scene.idle_after(2000, does)
    assert 500 + TIMEOUT_S - 20 <= took_s <= 500 + TIMEOUT_S + 20


def test_seconds_in_which_the_worker_was_stopped_do_not_count(scene: Scene) -> None:
    """The agent may have been stopped as well."""
    scene.idle_after(100)
    scene.now_s += 1000
    assert not scene.watch.is_idle()
    assert scene.idle_after(1000) >= TIMEOUT_S


def test_what_a_tree_of_processes_does_is_measured() -> None:
    """A sleeper does nothing; what a child of it has done stays when it has ended."""
    program = (
        "import subprocess, sys; sys.stdin.readline(); subprocess.run(['sh', '-c', sys.argv[1]])"
    )
    burn = "head -c 100000000 /dev/zero > /dev/null; exec sleep 60"
    command = [sys.executable, "-c", program, burn]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        pid = process.pid
        assert poll_for(lambda: tree_work(pid) == tree_work(pid))
        before = tree_work(pid)
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert poll_for(lambda: tree_work(pid).moved_bytes >= before.moved_bytes + 10**8)
        assert poll_for(lambda: len(tree_work(pid).pids) == len(before.pids) + 1)
        for one in reversed(tree_work(pid).pids):
            os.kill(one, signal.SIGKILL)
    assert tree_work(pid).pids == ()


def test_a_job_ends_an_init_that_waits_for_nothing(tmp_path: Path) -> None:
    """And says where it waits, and what to do."""
    (tmp_path / "waits.py").write_text(
        "import threading\n\ndef init():\n    threading.Event().wait()\n\nrun = print\n"
    )
    with pytest.raises(daskprs.ParallelRunFailed) as caught:
        daskprs.parallel_run(
            pd.DataFrame({"n": [1]}),
            tmp_path / "waits.py",
            job_dir=tmp_path / "job",
            init_idle_timeout=1,
            process_count_per_node=1,
            progress=False,
        )
    said = str(caught.value)
    assert "init() did nothing for init_idle_timeout=1 s in every process" in said
    assert "in waits.py, line 4, in init" in said
    assert "Raise init_idle_timeout if it needs longer, or let it print" in said
