"""The governors of a cluster, on its scheduler: one for each limit, of one job or of several."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from daskprs._core.governor import Governor, Grant, Report

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from distributed import Scheduler, Worker

    from daskprs._core.rate_limit import RateLimit

HANDLER = "daskprs_permits"
"""The name of the operation by which workers report."""
PER_WORKER_S = 0.005
"""Seconds between two reports at the scheduler; with many workers, each reports less often."""


class SharedGovernor:
    """A governor, and the jobs whose processes it serves."""

    def __init__(self, limit: RateLimit) -> None:
        self.governor = Governor(limit)
        self.limits: dict[str, RateLimit] = {}
        """By job."""
        self.members: dict[tuple[str, str], set[str]] = {}
        """The processes of each job on each worker."""

    def keep_lowest(self) -> None:
        """Keep the lowest numbers of all jobs."""
        lowest, *others = self.limits.values()
        for one in others:
            lowest = lowest.lowest(one)
        self.governor.change(lowest)

    def lose(self, job: str, worker: str | None = None) -> None:
        """Forget the processes of a job, on a worker or on all."""
        for key in [*self.members]:
            if key[0] == job and worker in (None, key[1]):
                self.governor.lose((*key, name) for name in self.members.pop(key))


class Governors:
    """All governors of a scheduler, which has these workers at present."""

    def __init__(self, workers: Collection[str]) -> None:
        self._workers = workers
        self._named: dict[str, SharedGovernor] = {}
        self._of_jobs: dict[str, SharedGovernor] = {}

    def join(self, job: str, limit: RateLimit) -> None:
        """Let a job have the governor of its limit."""
        if limit.name is None:
            shared = SharedGovernor(limit)
        else:
            shared = self._named.setdefault(limit.name, SharedGovernor(limit))
        shared.limits[job] = limit
        shared.keep_lowest()
        self._of_jobs[job] = shared

    def leave(self, job: str) -> None:
        """Take a job off its governor."""
        shared = self._of_jobs.pop(job, None)
        if shared is None:
            return
        shared.lose(job)
        limit = shared.limits.pop(job)
        if shared.limits:
            shared.keep_lowest()
        elif limit.name is not None:
            del self._named[limit.name]

    def lose_worker(self, job: str, worker: str) -> None:
        """Forget the processes of a job on a worker that has gone."""
        if job in self._of_jobs:
            self._of_jobs[job].lose(job, worker)

    @property
    def are_needed(self) -> bool:
        """Whether any job has one."""
        return bool(self._of_jobs)

    def handle(self, job: str, worker: str, reports: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        """Answer a worker: what each of its processes gets, and when it is to report again.

        It reports of all its processes: one that it knows no more has ended.
        """
        shared = self._of_jobs.get(job)
        # A late report of a worker that has gone would bring its processes back for ever.
        if shared is None or worker not in self._workers:  # or the job has ended
            return {"grants": {}, "after_s": 1.0}
        known = shared.members.get((job, worker), set())
        shared.governor.lose((job, worker, name) for name in known - reports.keys())
        shared.members[job, worker] = {*reports}
        made = {(job, worker, name): Report(*values) for name, values in reports.items()}
        grants = shared.governor.handle(made, time.monotonic())
        return {
            "grants": {name: list(grants[job, worker, name]) for name in reports},
            "after_s": PER_WORKER_S * len(shared.members),
        }


_governors: WeakKeyDictionary[Any, Governors] = WeakKeyDictionary()
"""By scheduler."""


def governors_of(scheduler: Scheduler) -> Governors:
    """Return the governors of a scheduler, which answers the reports of workers from now on."""
    if scheduler not in _governors:
        _governors[scheduler] = Governors(scheduler.workers)
    governors = _governors[scheduler]
    scheduler.handlers[HANDLER] = governors.handle
    return governors


def leave_governor(scheduler: Scheduler, job: str) -> None:
    """Take a job off its governor; without any, the scheduler is as it was."""
    governors = _governors.get(scheduler)
    if governors is None:
        return
    governors.leave(job)
    if not governors.are_needed:
        scheduler.handlers.pop(HANDLER, None)
        del _governors[scheduler]


async def ask_governor(
    worker: Worker, job: str, reports: Mapping[str, Report]
) -> tuple[dict[str, Grant], float]:
    """Report to the governor; return what each process gets, and the seconds until the next report.

    Raise `OSError` if the scheduler does not answer, or has no governor.
    """
    answer = await getattr(worker.scheduler, HANDLER)(
        job=job,
        worker=worker.address,
        reports={name: list(report) for name, report in reports.items()},
    )
    if answer is None:  # Dask's answer where no job has a governor: this one is just leaving
        msg = "the scheduler has no governor"
        raise ConnectionError(msg)
    grants = {name: Grant(*values) for name, values in answer["grants"].items()}
    return grants, answer["after_s"]
