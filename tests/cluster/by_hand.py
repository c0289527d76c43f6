"""A cluster of processes, each started by a command of its own, as people do it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
from polling import poll_for

if TYPE_CHECKING:
    from pathlib import Path

START_S = 60.0


class ByHand:
    """A scheduler, and workers that are started and struck one by one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        told = folder / "address"
        self.scheduler = self._start(
            "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
            "--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(told),
        )  # fmt: skip
        assert poll_for(lambda: told.exists() and told.read_text().endswith("}"), START_S)
        self._file = str(told)
        self.address = next(
            word for word in told.read_text().split('"') if word.startswith("tcp://")
        )

    def worker(self, *options: str, nanny: bool = False) -> subprocess.Popen[bytes]:
        """Start a worker; it has one thread unless the options say otherwise."""
        threads = () if "--nthreads" in options else ("--nthreads", "1")
        return self._start(
            "worker", "--scheduler-file", self._file, *threads, *options,
            "--nanny" if nanny else "--no-nanny", "--host", "127.0.0.1", "--no-dashboard",
            "--memory-limit", "0", "--local-directory", str(self._folder),
        )  # fmt: skip

    def close(self) -> None:
        """Kill what is left."""
        for process in reversed(self._processes):
            with contextlib.suppress(psutil.NoSuchProcess):
                children = psutil.Process(process.pid).children(recursive=True)
                for child in children:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        child.send_signal(signal.SIGCONT)
                        child.kill()
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
            process.kill()
            process.wait()

    def _start(self, *command: str) -> subprocess.Popen[bytes]:
        log = self._folder / f"{len(self._processes)}-{command[0]}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "dask", *command],
                stdout=file,
                stderr=file,
                # What tests ask of schedulers and workers is in modules of the tests.
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        self._processes.append(process)
        return process
