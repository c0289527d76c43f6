"""Runs a program and measures its whole tree: wall, processor time, peak memory.

The processor time is what the kernel has added up for children that were waited for. So that
nothing is missed, this process adopts orphans, and reaps all before it looks. Some programs let
the kernel drop the times of their children; then what samples saw of each process is more.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from daskprs._system.linux import adopt_orphans, descendants

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

INTERVAL_S = 0.02
GRACE_S = 3.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
REAP_INTERVAL_S = 0.02
SHARE_OF_SAMPLING = 0.05
"""Of one core, at most: looking at memory costs the process that is looked at, too."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run took.

    Parameters
    ----------
    wall_s
        From the start of the program to its end.
    cpu_s
        User and system time of the tree.
    peak_pss_bytes
        The largest sum of proportional set sizes that a sample saw.
    status
        The exit status; None if its time was over.

    """

    wall_s: float
    cpu_s: float
    peak_pss_bytes: int
    status: int | None


def measure(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], limit_s: float
) -> Measured:
    """Run a program in a folder, with its streams in `log.txt`, and leave nothing of it."""
    adopt_orphans()
    ours = set(descendants(os.getpid()))
    cpu_before = _cpu_of_children_s()
    with (folder / "log.txt").open("wb") as log:
        begin = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
        samples = _Samples(ours)
        samples.start()
        ended = _ends_within(process.pid, limit_s)
        wall_s = time.perf_counter() - begin
        status = process.wait() if ended else None
        samples.stop()
        _end_all(ours)
        process.wait()  # it has been reaped: Popen is to know
    cpu_s = max(_cpu_of_children_s() - cpu_before, samples.cpu_s())
    return Measured(wall_s, cpu_s, samples.peak_bytes, status)


def _ends_within(pid: int, limit_s: float) -> bool:
    """Wait for a process without looking again and again, which would round its time up."""
    handle = os.pidfd_open(pid)
    try:
        ready, _, _ = select.select([handle], [], [], limit_s)
    finally:
        os.close(handle)
    return bool(ready)


class _Samples(threading.Thread):
    """Looks at the descendants of this process that were not there before, again and again."""

    def __init__(self, others: set[int]) -> None:
        super().__init__(daemon=True)
        self._others = others
        self.peak_bytes = 0
        self._cpu_s: dict[int, float] = {}
        self._stopped = threading.Event()

    def run(self) -> None:
        pause_s = INTERVAL_S
        while not self._stopped.wait(pause_s):
            begin = time.thread_time()
            found = _descendants(self._others)
            self.peak_bytes = max(self.peak_bytes, sum(map(_pss_bytes, found)))
            for pid in found:
                self._cpu_s[pid] = max(_cpu_s(pid), self._cpu_s.get(pid, 0))
            pause_s = max(INTERVAL_S, (time.thread_time() - begin) / SHARE_OF_SAMPLING)

    def stop(self) -> None:
        """End it."""
        self._stopped.set()
        self.join()

    def cpu_s(self) -> float:
        """Return what all of them had used when they were last seen."""
        return sum(self._cpu_s.values())


def _pss_bytes(pid: int) -> int:
    """Return the proportional set size of a process, 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:  # noqa: PTH123 - a hot path
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        pass
    return 0


def _cpu_s(pid: int) -> float:
    """Return the processor time of a process itself, 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - a hot path
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    user, system = fields[11:13]
    return (int(user) + int(system)) / TICKS_PER_S


def _end_all(others: set[int]) -> None:
    """End what a program has left behind, and reap it."""
    deadline = time.monotonic() + GRACE_S
    for pid in _descendants(others):
        _signal(pid, signal.SIGTERM)
    while left := _descendants(others):
        for pid in left:
            if time.monotonic() > deadline:
                _signal(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(REAP_INTERVAL_S)


def _descendants(others: set[int]) -> list[int]:
    return [pid for pid in descendants(os.getpid()) if pid not in others]


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _cpu_of_children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
