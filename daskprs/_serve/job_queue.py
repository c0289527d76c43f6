"""All jobs of the service: the queue, and the limit of jobs that run at once.

All state comes from the job folders, so that a restarted service knows the same jobs.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import threading
import time
import uuid
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from daskprs._core.ending import EXIT_FAILED
from daskprs._report.humanize import counted
from daskprs._serve.bodies import NAME_PATTERN
from daskprs._serve.http_errors import Refusal, not_found
from daskprs._serve.retention import Retention
from daskprs._serve.served_job import (
    COMPLETED,
    LIVE,
    NO_ROOM,
    QUEUED,
    RequestedJob,
    ServedJob,
    ServedStatus,
    is_remnant,
)
from daskprs._system.regular_files import append_regular
from daskprs._system.remove_tree import remove_tree
from daskprs.errors import JobFolderError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from daskprs._serve.job_user import JobUser
    from daskprs._serve.served_job import SentRequest
    from daskprs._system.child_process import ChildProcess

T = TypeVar("T")
LOG = logging.getLogger(__name__)
LOOK_EVERY_S = 0.2
RETRY_AFTER_S = 30
RETRY_AFTER_END_S = 10
TIDY_EVERY_S = 60.0
REMOVED = ".removed-"
"""The beginning of the name of a folder that is about to be removed; a job has no such name."""
REQUEST_ID = "repeatability_request-id"
"""The header by which Azure's client names a request, the same in each of its tries."""


class JobQueue:
    """Knows every job in a folder, starts the next jobs, and notices their ends."""

    def __init__(
        self,
        folder: Path,
        max_running: int = 1,
        max_queued: int = 1000,
        *,
        users: Sequence[JobUser] = (),
        retention: Retention = Retention(),  # noqa: B008 - immutable
    ) -> None:
        self.retention = retention
        self._ended_s: dict[tuple[str, int], float] = {}
        """When each turn of a job ended, for those that have ended."""
        self._folder = folder.resolve()
        self._max_running = max_running
        self._max_queued = max_queued
        self._users = users
        """The users as whom jobs run, one job at a time as each; none: that of the service."""
        self._lock = threading.RLock()
        self._jobs: dict[str, ServedJob] = {}
        """All jobs, in the order of acceptance."""
        self._requests: dict[tuple[str, str], ServedJob] = {}
        """The jobs of requests with an identity, by caller and id."""
        self._queue: deque[ServedJob] = deque()
        self._running: dict[str, ServedJob] = {}
        self._processes: list[ChildProcess] = []
        self._number = 0
        self.is_draining = False
        """Whether the service is about to end: no job is accepted or started."""
        self._woken, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="daskprs-serve", daemon=True)
        self._tidier = threading.Thread(target=self._tidy, name="daskprs-tidy", daemon=True)

    def open(self) -> None:
        """Find the jobs of earlier services, and start working on the queue."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self._users:
            self._folder.chmod(0o711)  # they pass through it, and cannot list it
        folders = [path for path in self._folder.iterdir() if path.is_dir()]
        found = [ServedJob.read(path) for path in folders]
        for path, job in zip(folders, found, strict=True):
            # A crash in the middle of an acceptance or a removal leaves such a folder. It must not
            # hold up the service, and its name is free again.
            if job is None and re.fullmatch(NAME_PATTERN, path.name) and is_remnant(path):
                path.rename(self._removed(path.name))
        jobs = sorted((job for job in found if job), key=lambda job: job.number)
        for job in sorted(jobs, key=lambda job: (job.asked.created, job.number)):
            self._know(job)
            self._number = max(self._number, job.number)
        for job in jobs:
            try:
                status = job.own_status()
            except Exception:  # whatever is in this job's folder: go on with the others
                LOG.exception("the job in %s", job.folder)
                continue
            if status is not None and status.status == QUEUED:
                self._queue.append(job)
            elif status is not None and status.status in LIVE:
                self._running[job.asked.name] = job
                continue
            job.close()
        self._thread.start()
        self._tidier.start()

    def drain(self) -> None:
        """Accept and start no more jobs, and end what follows one."""
        self.is_draining = True

    def close(self) -> None:
        """Stop working on the queue; running jobs continue by themselves."""
        self._stop.set()
        self._woken.set()
        self._thread.join()
        for process in self._processes:
            process.leave()

    # ---- for callers ----

    def submit(
        self,
        asked: Callable[[str, str, Path], RequestedJob],
        sent: SentRequest | None = None,
        name: str | None = None,
    ) -> ServedJob:
        """Accept a job; `asked` receives the job's name, the time, and the job's folder.

        A request that was sent before gives the job of that time.
        """
        name = name or f"batchjob-{uuid.uuid4()}"
        now = datetime.now(UTC).isoformat()
        with self._lock:
            if sent is not None and (known := self.sent_before(sent)) is not None:
                return known
            self._refuse_more()
            request = asked(name, now, self._folder / name)
            self._refuse_shared(request.places)
            _refuse_existing(request.places)
            if (self._folder / name).exists():
                message = f"There is a job {name!r} already: give another name, or none."
                raise Refusal(409, "JobExists", message, target="properties.name")
            self._number += 1
            request = request._replace(request=sent)
            job = _on_disk(lambda: ServedJob.create(self._folder / name, request, self._number))
            self._jobs.pop(name, None)  # a job of that name whose folder was removed
            self._know(job)
            self._queue.append(job)
        self._woken.set()
        return job

    def _know(self, job: ServedJob) -> None:
        self._jobs[job.asked.name] = job
        if (sent := job.asked.request) is not None:
            self._requests[sent.caller, sent.id] = job

    def sent_before(self, sent: SentRequest) -> ServedJob | None:
        """Return the job of a request that is sent again; refuse another request of the same id."""
        job = self._requests.get((sent.caller, sent.id))
        if job is None or not job.folder.is_dir():
            return None
        if job.asked.request != sent:
            message = f"The request {sent.id!r} was another one: each new request needs a new id."
            raise Refusal(409, "RequestIdInUse", message, target=REQUEST_ID)
        return job

    def _refuse_shared(self, places: Mapping[str, bool]) -> None:
        """Refuse output where a job that waits or runs has its own."""
        self._reap()
        for place in map(Path, places):
            for job in (*self._queue, *self._running.values()):
                for other in map(Path, job.asked.places):
                    if place.is_relative_to(other) or other.is_relative_to(place):
                        message = f"The job {job.asked.name} writes to {str(other)!r}."
                        raise Refusal(409, "OutputInUse", message, target="properties.OutputData")

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

    def listed(
        self, top: int, skip: str | None, shows: Callable[[RequestedJob], bool]
    ) -> tuple[list[ServedJob], str | None]:
        """Return the newest jobs, after the job `skip`, and the last name if older jobs follow."""
        with self._lock:
            jobs = list(reversed(self._jobs.values()))
        names = [job.asked.name for job in jobs]
        if skip is not None and skip not in names:
            raise not_found("job", skip, "$skip")
        begin = 0 if skip is None else names.index(skip) + 1
        found = (job for job in jobs[begin:] if shows(job.asked) and job.folder.is_dir())
        page = list(itertools.islice(found, top + 1))
        return page[:top], page[top - 1].asked.name if len(page) > top else None

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
            if self._jobs.get(job.asked.name) is not job:
                raise not_found("job", job.asked.name, "name")  # it was removed meanwhile
            status = (_on_disk(job.own_status) or ended).status
            if status in LIVE or status == COMPLETED:
                can = "only a Failed, Canceled or Interrupted job can be resumed."
                message = f"The job is {status}; {can}"
                raise Refusal(409, "CannotResume", message, target="name")
            self._refuse_more()
            self._refuse_shared(job.asked.places)
            self._number += 1
            _on_disk(lambda: job.queue(self._number))
            self._queue.append(job)
        self._woken.set()

    def _refuse_more(self) -> None:
        if self.is_draining:
            message = "This service is about to end. Send the request again later."
            headers = {"Retry-After": str(RETRY_AFTER_END_S)}
            raise Refusal(503, "ServiceEnding", message, headers=headers)
        if len(self._queue) >= self._max_queued:
            waiting = counted(len(self._queue), "job")
            verb = "is" if len(self._queue) == 1 else "are"
            message = f"{waiting} {verb} waiting; this service takes no more for now."
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
        while self._queue and len(self._running) < self._max_running and not self.is_draining:
            busy = {job.owner for job in self._running.values()} if self._users else ()
            free = [user for user in self._users if user.uid not in busy]
            if self._users and not free:
                return
            try:
                self._start(self._queue[0], free)
            except OSError as error:
                if error.errno in NO_ROOM or not self._give_up(error):
                    return
            except Exception as error:  # noqa: BLE001 - one job must not hold up the others
                if not self._give_up(error):
                    return
            else:
                self._queue.popleft()

    def _reap(self) -> None:
        self._processes = [one for one in self._processes if one.poll() is None]
        ended = [name for name, job in self._running.items() if not _is_alive(job)]
        for name in ended:
            self._running.pop(name).close()

    def _start(self, job: ServedJob, free: Sequence[JobUser]) -> None:
        """Start a job; as the user of its last turn, if this user is free."""
        user = min(free, key=lambda one: one.uid != job.owner, default=None)
        self._processes.append(job.start(user, [one.uid for one in self._users]))
        self._running[job.asked.name] = job

    def _give_up(self, error: Exception) -> bool:
        """Fail the next job, which cannot be started; return False if that cannot be recorded.

        The job is tried again then, after all others.
        """
        job = self._queue.popleft()
        with suppress(OSError, JobFolderError), append_regular(job.driver_output) as file:
            file.write(f"daskprs: the job's process cannot be started: {error}\n")
        try:
            job.write_end(EXIT_FAILED)
        except OSError:
            if job.folder.is_dir():
                self._queue.append(job)
                return False
        job.close()
        return True

    # ---- retention ----

    def _tidy(self) -> None:
        while True:
            try:
                self.remove_old(time.time())
            except Exception:  # any error may be temporary: try again in the next round
                LOG.exception("the removal of old jobs")
            if self._stop.wait(TIDY_EVERY_S):
                return

    def remove_old(self, now_s: float) -> None:
        """Remove the folders of ended jobs that the retention does not keep.

        A folder is renamed first, in one step and while nothing else happens to the job. So no
        request sees half a job, and what a crash leaves is removed by the next service.
        """
        if self.retention != Retention():
            for name in self.retention.surplus(self._ended(), now_s):
                with self._lock:
                    job = self._jobs[name]
                    if job.folder.is_dir() and self._has_ended(job):
                        job.folder.rename(self._removed(name))
                        self._forget(job)
        for path in self._folder.glob(f"{REMOVED}*"):
            try:
                remove_tree(path)
            except OSError as error:
                LOG.error("%s cannot be removed: %s", path, error)  # noqa: TRY400 - it says why

    def _removed(self, name: str) -> Path:
        """Return the path of a job that is removed; a crash may have left one of its name."""
        free = (self._folder / f"{REMOVED}{name}{'-' * count}" for count in itertools.count())
        return next(path for path in free if not path.exists())

    def _forget(self, job: ServedJob) -> None:
        del self._jobs[job.asked.name]
        if (sent := job.asked.request) is not None:
            self._requests.pop((sent.caller, sent.id), None)

    def _ended(self) -> dict[str, float]:
        """Return the times when jobs have ended, by name."""
        with self._lock:
            known = list(self._jobs.values())
        before, self._ended_s = self._ended_s, {}
        for job in known:
            with suppress(OSError):  # the folder was removed
                if self._has_ended(job):
                    turn = job.asked.name, job.turn
                    self._ended_s[turn] = before.get(turn) or job.last_change_s()
        return {name: ended_s for (name, _), ended_s in self._ended_s.items()}

    def _has_ended(self, job: ServedJob) -> bool:
        with self._lock:
            status = job.end or job.own_status()
        return status is None or status.status not in LIVE


def _refuse_existing(places: Mapping[str, bool]) -> None:
    for place, is_file in places.items():
        if os.path.lexists(place) and (is_file or not Path(place).is_dir()):
            message = f"{place!r} exists already: name another place, or another outputFileName."
            raise Refusal(409, "OutputExists", message, target="properties.OutputData")


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
