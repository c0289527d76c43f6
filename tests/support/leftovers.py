"""What a test has left behind: processes, threads, descriptors."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from multiprocessing import forkserver, resource_tracker
from typing import Any

import psutil

from daskprs._system.linux import descendants
from tests.support.warm_start import warm_start

LASTING_THREADS = (
    "Dask-Offload",  # distributed's own thread for work off its loop, kept for the next client
    "Dask-Callback-Thread",  # the same for what is called when a future is done
    "Profile",  # distributed's profiler of the process; it looks at a flag about once a second
    "TCP-Executor",  # distributed's resolver of host names
    "execnet",  # xdist's channel to its controller
    "pytest_timeout",  # the timer of pytest-timeout
)
"""Threads that a library keeps for the whole process once it was used, and why they are fine."""


class Leftovers:
    """What this process has at one moment, to be compared with a later one."""

    def __init__(self) -> None:
        self._children = {child.pid: child for child in _children()}
        self._threads = {id(thread): thread for thread in _threads()}
        self._descriptors = _descriptors()

    def since(self, before: Leftovers) -> list[str]:
        """Return what was not there before, as people read it."""
        return [
            *(f"process {_told(child)}" for child in self._new_children(before)),
            *(
                f"thread {thread.name}"
                for key, thread in self._threads.items()
                if key not in before._threads
            ),
            *(
                f"descriptor {fd} ({target})"
                for fd, target in self._descriptors.items()
                if before._descriptors.get(fd) != target
            ),
        ]

    def end_processes(self, before: Leftovers) -> None:
        """Kill the processes that were not there before, so that they outlive one test only."""
        for child in self._new_children(before):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()

    def reap(self, before: Leftovers) -> None:
        """Reap orphans that have ended: they are ours by adoption, nobody else waits on them."""
        for child in self._new_children(before):
            with contextlib.suppress(psutil.NoSuchProcess, ChildProcessError):
                if child.status() == psutil.STATUS_ZOMBIE:
                    os.waitpid(child.pid, os.WNOHANG)

    def _new_children(self, before: Leftovers) -> list[psutil.Process]:
        return [
            child
            for pid, child in self._children.items()
            if (pid not in before._children or before._children[pid] != child)
            and not _has_ended_elsewhere(child)
        ]


def _kept() -> tuple[set[int | None], set[int | None]]:
    """Return the process ids and descriptors that stay until this process ends."""
    tracker: Any = resource_tracker._resource_tracker
    server: Any = forkserver._forkserver
    pids, fds = warm_start.kept()
    return (
        {tracker._pid, server._forkserver_pid, *pids},
        {tracker._fd, server._forkserver_alive_fd, *fds},
    )


def _children() -> list[psutil.Process]:
    """Return all descendants but those that stay.

    The kernel is asked for the children of each. psutil reads of all processes of the machine who
    their parents are, twice for each of some thousand tests.
    """
    kept, _ = _kept()
    found = []
    for pid in descendants(os.getpid()):
        if pid not in kept:
            with contextlib.suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(pid))
    return found


def _threads() -> list[threading.Thread]:
    """Return all threads but those that libraries keep."""
    pool: Any = getattr(sys.modules.get("dask.threaded"), "default_pool", None)
    kept = set() if pool is None else set(pool._threads)
    return [
        thread
        for thread in threading.enumerate()
        if thread not in kept and not thread.name.startswith(LASTING_THREADS)
    ]


def _descriptors() -> dict[int, str]:
    """Return what each open descriptor leads to."""
    _, kept = _kept()
    found = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - as below
        fd = int(name)
        target = _target(fd)
        if target and fd not in kept:
            found[fd] = target
    return found


def _target(fd: int) -> str:
    """Return what a descriptor leads to: empty for that of the listing, which is closed by now."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 - a Path takes thrice the time
    except OSError:
        return ""


def _has_ended_elsewhere(child: psutil.Process) -> bool:
    """Say whether a process is gone, or has ended, and another one has not looked at its end yet.

    A service that was forked from a template adopts what its jobs were forked from. It may look
    while this process compares: then what was of another is gone a moment later.
    """
    try:
        return child.status() == psutil.STATUS_ZOMBIE and child.ppid() != os.getpid()
    except psutil.NoSuchProcess:
        return True


def _told(child: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return f"{child.pid} ({' '.join(child.cmdline())[:100] or child.status()})"
    return str(child.pid)
