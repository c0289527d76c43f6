"""A Dask cluster as a person starts it by hand: a scheduler and workers, each with a nanny."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
from distributed import Client

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

START_S = 60.0
COME_BACK_S = 20.0
POLL_S = 0.02
SETTINGS = {
    # What is stopped is given up after ten seconds instead of five minutes.
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "10s",
    "DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE": "false",
}


class HandCluster:
    """Starts what is missing, strikes what is there, and ends everything.

    Parameters
    ----------
    folder
        For logs and scratch space of the cluster.
    workers, threads
        How many workers, and slots of each.

    """

    def __init__(self, folder: Path, workers: int = 2, threads: int = 2) -> None:
        self._folder = folder
        self._wanted = workers
        self._threads = threads
        self._scheduler: subprocess.Popen[bytes] | None = None
        self._nannies: list[subprocess.Popen[bytes]] = []
        self._started = 0
        self.address = ""

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True)
        self.mend()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in (*self._nannies, self._scheduler):
            if process is not None:
                end_tree(process)

    def mend(self) -> None:
        """Start what is missing, and wait until all workers are known.

        A nanny whose worker was killed twice in a row may not start a third: it is replaced.
        """
        self.start_missing()
        if not has_workers(self.address, self._wanted, COME_BACK_S):
            for nanny in self._nannies:
                end_tree(nanny)
            self.start_missing()
            if not has_workers(self.address, self._wanted, START_S):
                raise TimeoutError(self._told())

    def start_missing(self) -> None:
        """Start what is missing."""
        if self._scheduler is None or self._scheduler.poll() is not None:
            for nanny in self._nannies:
                end_tree(nanny)
            self._nannies.clear()
            self._start_scheduler()
        self._nannies = [nanny for nanny in self._nannies if nanny.poll() is None]
        while len(self._nannies) < self._wanted:
            self._nannies.append(
                self._start(
                    "worker",
                    self.address,
                    *("--nthreads", str(self._threads), "--nworkers", "1", "--nanny"),
                    *("--host", "127.0.0.1", "--memory-limit", "0", "--no-dashboard"),
                    *("--local-directory", str(self._folder)),
                )
            )

    @property
    def scheduler(self) -> int:
        """The process id of the scheduler."""
        assert self._scheduler is not None
        return self._scheduler.pid

    @property
    def processes(self) -> list[int]:
        """The process ids of all that belongs to the cluster."""
        roots = [*self._nannies, self._scheduler]
        return [process.pid for process in roots if process is not None]

    def leftovers(self) -> list[str]:
        """Return what the cluster still has of any job."""
        return leftovers(self.address)

    def _start_scheduler(self) -> None:
        told = self._folder / f"scheduler-{self._started}.json"
        self._scheduler = self._start(
            "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
            "--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(told),
        )  # fmt: skip
        _wait(told.exists, "the scheduler")
        while True:
            with contextlib.suppress(json.JSONDecodeError):  # half of it is there
                self.address = json.loads(told.read_text())["address"]
                return
            time.sleep(POLL_S)

    def _start(self, kind: str, *arguments: str) -> subprocess.Popen[bytes]:
        self._started += 1
        log = self._folder / f"{kind}-{self._started}.log"
        with log.open("wb") as file:
            return subprocess.Popen(
                [sys.executable, "-m", "dask", kind, *arguments],
                stdout=file,
                stderr=subprocess.STDOUT,
                env=os.environ | SETTINGS,
                start_new_session=True,
            )

    def _told(self) -> str:
        """Return the ends of all logs."""
        logs = sorted(self._folder.glob("*.log"))
        return "".join(f"{log.name}:\n{log.read_text()[-2000:]}\n" for log in logs)


def has_workers(address: str, count: int, timeout_s: float) -> bool:
    """Return whether a scheduler has so many workers, or gets them in time.

    One that is dying has none.
    """
    try:
        with Client(address, set_as_default=False, timeout=START_S) as client:
            client.wait_for_workers(count, timeout=timeout_s)
    except (TimeoutError, OSError):
        return False
    return True


def leftovers(address: str) -> list[str]:
    """Return what a cluster still has of any job: plugins and tasks."""
    with Client(address, set_as_default=False, timeout=START_S) as client:
        # Lambdas, since they travel by value: nobody there has this module.
        names: list[str] = client.run_on_scheduler(
            lambda dask_scheduler: [*dask_scheduler.plugins, *map(str, dask_scheduler.tasks)]
        )
        of_workers = client.run(lambda dask_worker: [*dask_worker.plugins], on_error="return")
        for of_worker in of_workers.values():
            names += of_worker if isinstance(of_worker, list) else []
    return [name for name in names if "daskprs" in name]


def end_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that was started here, and what it has started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    process.wait()


def _wait(condition: object, what: str) -> None:
    until = time.monotonic() + START_S
    while not condition():  # type: ignore[operator]
        if time.monotonic() > until:
            msg = f"{what} did not start within {START_S:.0f} s"
            raise TimeoutError(msg)
        time.sleep(POLL_S)
