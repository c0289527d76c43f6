"""A cluster of processes, each started by a command of its own, as people do it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psutil

from tests.support.polling import poll_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

START_S = 60.0


class ByHand:
    """A scheduler, and workers that are started and struck one by one.

    Parameters
    ----------
    folder
        For the logs of all, and scratch space.
    environment
        Variables besides those that this process has at the time.

    """

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        # What tests ask of schedulers and workers is in modules of the tests.
        paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._environment = {**paths, **(environment or {})}
        self._processes: list[subprocess.Popen[bytes]] = []
        self.start_scheduler()

    def start_scheduler(self) -> None:
        """Start a scheduler, with an address of its own."""
        told = self.folder / f"scheduler-{len(self._processes)}.json"
        self.scheduler = self._start(
            "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
            "--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(told),
        )  # fmt: skip
        assert poll_for(lambda: told.exists() and told.read_text().endswith("}"), START_S), (
            self.said()
        )
        self.address = next(
            word for word in told.read_text().split('"') if word.startswith("tcp://")
        )

    def worker(self, *options: str, nanny: bool = False) -> subprocess.Popen[bytes]:
        """Start a worker; by default it has one thread, on 127.0.0.1."""
        usual = {"--nthreads": "1", "--host": "127.0.0.1"}
        more = [word for pair in usual.items() if pair[0] not in options for word in pair]
        return self._start(
            "worker", self.address, *options, *more,
            "--nanny" if nanny else "--no-nanny", "--no-dashboard",
            "--memory-limit", "0", "--local-directory", str(self.folder),
        )  # fmt: skip

    def close(self) -> None:
        """Kill what is left."""
        for process in reversed(self._processes):
            end_tree(process)

    def said(self) -> str:
        """Return the ends of all logs."""
        logs = sorted(self.folder.glob("*.log"))
        return "".join(f"{log.name}:\n{log.read_text()[-2000:]}\n" for log in logs)

    def _start(self, *command: str) -> subprocess.Popen[bytes]:
        log = self.folder / f"{len(self._processes)}-{command[0]}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "dask", *command],
                stdout=file,
                stderr=file,
                env={**os.environ, **self._environment},
                start_new_session=True,
            )
        self._processes.append(process)
        return process


def end_tree(process: subprocess.Popen[Any]) -> None:
    """Kill a process that was started here, and what it has started; stopped ones, too."""
    children: Iterable[psutil.Process] = ()
    with contextlib.suppress(psutil.NoSuchProcess):
        children = psutil.Process(process.pid).children(recursive=True)
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    process.wait()
