"""A Dask cluster that is struck and mended: a scheduler and workers, each with a nanny."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from distributed import Client

from tests.support.by_hand import START_S, ByHand, end_tree

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Self

COME_BACK_S = 20.0
SETTINGS = {
    # What is stopped is given up after ten seconds instead of five minutes.
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "10s",
    "DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE": "false",
}


class HandCluster(ExitStack):
    """Starts what is missing, strikes what is there, and ends everything.

    Parameters
    ----------
    folder
        For logs and scratch space of the cluster.
    workers, threads
        How many workers with a nanny, and slots of each.
    bare
        How many workers without a nanny.
    options
        More options of the first workers with a nanny, a tuple for each.

    """

    def __init__(
        self,
        folder: Path,
        workers: int = 2,
        threads: int = 2,
        bare: int = 0,
        options: Sequence[tuple[str, ...]] = (),
    ) -> None:
        super().__init__()
        self._folder = folder
        self._bare_wanted = bare
        self._wanted = workers + bare
        self._threads = threads
        self._options = [*options, *[()] * (workers - len(options))]
        self._nannies: dict[int, subprocess.Popen[bytes]] = {}
        """By number: one that is replaced has the same options."""
        self._bare: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True)
        self._cluster = ByHand(self._folder, SETTINGS)
        self.callback(self._cluster.close)
        self.mend()
        return self

    def mend(self) -> None:
        """Start what is missing, and wait until all workers are known.

        A nanny whose worker was killed twice in a row may not start a third: it is replaced.
        """
        self.start_missing()
        if not has_workers(self.address, self._wanted, COME_BACK_S):
            self._end_workers()
            self.start_missing()
            if not has_workers(self.address, self._wanted, START_S):
                raise TimeoutError(self._cluster.said())

    def start_missing(self) -> None:
        """Start what is missing."""
        if self._cluster.scheduler.poll() is not None:
            self._end_workers()
            self._cluster.start_scheduler()
        self._nannies = {n: nanny for n, nanny in self._nannies.items() if nanny.poll() is None}
        self._bare = [worker for worker in self._bare if worker.poll() is None]
        threads = ("--nthreads", str(self._threads), "--nworkers", "1")
        for number, options in enumerate(self._options):
            if number not in self._nannies:
                nanny = self._cluster.worker(*threads, *options, nanny=True)
                self._nannies[number] = nanny
        while len(self._bare) < self._bare_wanted:
            self._bare.append(self._cluster.worker(*threads))

    @property
    def address(self) -> str:
        """That of the scheduler."""
        return self._cluster.address

    @property
    def scheduler(self) -> int:
        """The process id of the scheduler."""
        return self._cluster.scheduler.pid

    @property
    def processes(self) -> list[int]:
        """The process ids of all that belongs to the cluster."""
        processes = *self._nannies.values(), *self._bare, self._cluster.scheduler
        return [process.pid for process in processes]

    @property
    def nannies(self) -> list[int]:
        """The process ids of the nannies."""
        return [process.pid for process in self._nannies.values()]

    @property
    def bare(self) -> list[int]:
        """The process ids of the workers without a nanny."""
        return [process.pid for process in self._bare]

    def leftovers(self) -> list[str]:
        """Return what the cluster still has of any job."""
        return leftovers(self.address)

    def _end_workers(self) -> None:
        for process in (*self._nannies.values(), *self._bare):
            end_tree(process)
        self._nannies.clear()
        self._bare.clear()


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
