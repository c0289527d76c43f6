"""All jobs of the service: the queue, and the limit of jobs that run at once.

All state comes from the job folders, so that a restarted service knows the same jobs.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import uuid
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from daskprs.core.ending import EXIT_FAILED
from daskprs.errors import JobFolderError
from daskprs.serve.http_errors import Refusal, not_found
from daskprs.serve.served_job import (
    COMPLETED,
    LIVE,
    QUEUED,
    RequestedJob,
    ServedJob,
    ServedStatus,
)
from daskprs.serve.tokens import VARIABLE
from daskprs.system.regular_files import append_regular

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from daskprs.system.child_process import ChildProcess

T = TypeVar("T")
LOG = logging.getLogger(__name__)
LOOK_EVERY_S = 0.2
NO_ROOM = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
"""Temporary errors: the system has no room for another process or descriptor."""
RETRY_AFTER_S = 30


class JobQueue:
    """Knows every job in a folder, starts the next jobs, and notices their ends."""

    def __init__(self, folder: Path, max_running: int = 1, max_queued: int = 1000) -> None:
        self._folder = folder.resolve()
        self._max_running = max_running
        self._max_queued = max_queued
        self._lock = threading.RLock()
        self._jobs: dict[str, ServedJob] = {}
        """All jobs, in the order of acceptance."""
        self._queue: deque[ServedJob] = deque()
        self._running: dict[str, ServedJob] = {}
        self._processes: list[ChildProcess] = []
        self._number = 0
        self._woken, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="daskprs-serve", daemon=True)

    def open(self) -> None:
        """Find the jobs of earlier services, and start working on the queue."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = [ServedJob.read(path) for path in self._folder.glob("batchjob-*")]
        jobs = sorted((job for job in found if job), key=lambda job: job.number)
        for job in sorted(jobs, key=lambda job: (job.asked.created, job.number)):
            self._jobs[job.asked.name] = job
            self._number = max(self._number, job.number)
        for job in jobs:
            try:
                status = job.own_status()
            except OSError:  # this job's folder cannot be read: go on with the others
                LOG.exception("the job in %s", job.folder)
                continue
            if status is not None and status.status == QUEUED:
                self._queue.append(job)
            elif status is not None and status.status in LIVE:
                self._running[job.asked.name] = job
        self._thread.start()

    def close(self) -> None:
        """Stop working on the queue; running jobs continue by themselves."""
        self._stop.set()
        self._woken.set()
        self._thread.join()
        for process in self._processes:
            process.leave()

    # ---- for callers ----

    def submit(self, asked: Callable[[str, str, Path], RequestedJob]) -> ServedJob:
        """Accept a job; `asked` receives the job's name, the time, and the job's folder."""
        name = f"batchjob-{uuid.uuid4()}"
        now = datetime.now(UTC).isoformat()
        with self._lock:
            self._refuse_more()
            self._number += 1
            request = asked(name, now, self._folder / name)
            job = _on_disk(lambda: ServedJob.create(self._folder / name, request, self._number))
            self._jobs[name] = job
            self._queue.append(job)
        self._woken.set()
        return job

    def get(self, name: str) -> ServedJob:
        """Return the job of a name, and refuse an unknown name."""
        job = self._jobs.get(name)
        if job is None or not job.folder.is_dir():
            raise not_found("job", name, "name")
        return job

    def status(self, job: ServedJob) -> ServedStatus:
        """Return the status of a job; the status of an ended job is read once.

        Reading a job folder may take long, so the lock is not held meanwhile.
        """
        if (end := job.end) is not None:
            return end
        with self._lock:
            status = _on_disk(job.own_status)
        return status or _on_disk(job.end_in_folder)

    def listed(self, top: int, skip: str | None) -> tuple[list[ServedJob], str | None]:
        """Return the newest jobs, after the job `skip`, and the last name if older jobs follow."""
        with self._lock:
            names = list(reversed(self._jobs))
        if skip is not None and skip not in self._jobs:
            raise not_found("job", skip, "$skip")
        begin = 0 if skip is None else names.index(skip) + 1
        shown = names[begin : begin + top]
        more = shown[-1] if len(names) > begin + top else None
        jobs = [self._jobs[name] for name in shown]
        return [job for job in jobs if job.folder.is_dir()], more

    def cancel(self, job: ServedJob) -> None:
        """End a job; an ended job stays as it is."""
        with self._lock:
            status = _on_disk(job.own_status)
            if status is not None and status.status in LIVE:
                _on_disk(job.cancel)
                with suppress(ValueError):
                    self._queue.remove(job)

    def resume(self, job: ServedJob) -> None:
        """Queue a job again, to continue where it stopped, unless it is Completed or live."""
        ended = self.status(job)  # without the lock
        with self._lock:
            status = (_on_disk(job.own_status) or ended).status
            if status in LIVE or status == COMPLETED:
                message = f"The job is {status}; only a Failed or Canceled job can be resumed."
                raise Refusal(409, "CannotResume", message, target="name")
            self._refuse_more()
            self._number += 1
            _on_disk(lambda: job.queue(self._number))
            self._queue.append(job)
        self._woken.set()

    def _refuse_more(self) -> None:
        if len(self._queue) >= self._max_queued:
            message = f"{len(self._queue)} jobs are waiting; this service takes no more for now."
            headers = {"Retry-After": str(RETRY_AFTER_S)}
            raise Refusal(429, "TooManyJobs", message, headers=headers)

    # ---- the work ----

    def _work(self) -> None:
        while not self._stop.is_set():
            with self._lock:
                try:
                    self._reap()
                    self._start_next()
                except Exception:  # any error may be temporary: try again in the next round
                    LOG.exception("the queue of jobs")
            self._woken.wait(LOOK_EVERY_S)
            self._woken.clear()

    def _start_next(self) -> None:
        """Start the next jobs; try later when the system has no room."""
        while self._queue and len(self._running) < self._max_running:
            try:
                self._start(self._queue[0])
            except OSError as error:
                if error.errno in NO_ROOM:
                    return
                self._give_up(self._queue[0], error)
            except Exception as error:  # noqa: BLE001 - one job must not hold up the others
                self._give_up(self._queue[0], error)
            self._queue.popleft()

    def _reap(self) -> None:
        self._processes = [one for one in self._processes if one.poll() is None]
        ended = [name for name, job in self._running.items() if not _is_alive(job)]
        for name in ended:
            del self._running[name]

    def _start(self, job: ServedJob) -> None:
        environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
        self._processes.append(job.start(environment))
        self._running[job.asked.name] = job

    def _give_up(self, job: ServedJob, error: Exception) -> None:
        """Fail a job that cannot be started, with the reason."""
        with suppress(OSError, JobFolderError), append_regular(job.driver_output) as file:
            file.write(f"daskprs: the job's process cannot be started: {error}\n")
        with suppress(OSError):
            job.write_end(EXIT_FAILED)


def _is_alive(job: ServedJob) -> bool:
    """Say whether a job's process lives; an unreadable folder must not block other jobs."""
    try:
        return job.is_alive()
    except OSError as error:
        LOG.exception("the job in %s", job.folder)
        return error.errno in NO_ROOM


def _on_disk(act: Callable[[], T]) -> T:
    """Call `act`, and turn an error of the disk into a refusal."""
    try:
        return act()
    except OSError as error:
        message = f"The service cannot write to its folder: {error.strerror}."
        raise Refusal(503, "StorageUnavailable", message) from error
