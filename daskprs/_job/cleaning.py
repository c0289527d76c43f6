"""Cleaning: the folders in a root of jobs, their age and status, and which of them go.

The run of a pipeline is one folder: the job folders of its steps go or stay with it.
"""

from __future__ import annotations

import stat
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, NamedTuple

from daskprs._core.ending import JobStatus
from daskprs._folders.job_folder import DOOMED, JobFolder
from daskprs._folders.job_lock import epochs_of, has_begun, holder, latest_epoch
from daskprs._folders.joint_folder import joint_folder_at
from daskprs._job.request import read_call
from daskprs._job.result import RUNNING
from daskprs._job.status import DIED, state_of
from daskprs._output.publish.open_uploads import abort_uploads
from daskprs._system.disk_space import used_bytes
from daskprs._system.file_lock import held
from daskprs._system.remove_tree import remove_tree
from daskprs.errors import DaskprsError, JobFolderError, JobFolderLocked

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from daskprs._folders.joint_folder import JointFolder

UNREADABLE = "Unreadable"
"""A job whose journal cannot be read, as that of another version."""
HALF_REMOVED = "Half removed"
"""A job folder that an earlier cleaning had begun to remove."""
CHANGED = "it has changed meanwhile"
OF_A_CALL = {"form", "script", "options"}
"""Keys of every saved call."""


class JobOnDisk(NamedTuple):
    """A job folder, or that of a pipeline, as a cleaning has found it."""

    job_dir: Path
    status: str
    """The status as in `job.status`; ``Died``, too, if the driver went before the job began."""
    age_s: float
    """Seconds since anything in the folder itself has changed."""
    size_bytes: int | None = None
    """Disk space of the folder; None where it stays."""
    output: Path | None = None
    """The output in the folder, if there is some: it goes with the folder."""
    has_rows: bool = False
    """Whether the folder has rows for `to_pandas`, which go with it."""
    stays: str = ""
    """Why the folder stays, in a word or a sentence; empty for one that goes."""
    steps: int | None = None
    """The number of steps of a pipeline; None for a job."""


class _Found(NamedTuple):
    """A folder that is removed as a whole: a job folder, or the folder of a pipeline."""

    folder: JobFolder | JointFolder
    last: Path
    """The file that is removed last: the rest of a folder is recognised by this file."""
    jobs: list[JobFolder]
    """The folder itself, or those in the folder of a pipeline, recorded as steps or not."""

    @property
    def path(self) -> Path:
        """The path of the folder."""
        return self.folder.path

    @property
    def epochs(self) -> list[int]:
        """The newest epoch of each job."""
        return [latest_epoch(job) for job in self.jobs]

    def hold(self, locks: ExitStack) -> None:
        """Take the locks of all drivers that may work here."""
        locks.enter_context(held(self.folder.lock, f"the folder {self.path}"))
        for job in self.jobs:
            if job is not self.folder:
                locks.enter_context(held(job.lock, f"the job folder {job}"))

    def abort_uploads(self) -> str:
        """Abort what drivers have left open in a store; return what is still open, and why."""
        return next(filter(None, map(_abort_uploads, self.jobs)), "")

    def status(self) -> str:
        """Return the status of the job or of the pipeline."""
        statuses = [_status(job) for job in self.jobs]
        if isinstance(self.folder, JobFolder):
            return statuses[0]
        state = self.folder.state()
        if RUNNING in statuses or state is None:
            return RUNNING
        # A job may have gone on by itself since its step was recorded.
        return next((one for one in statuses if one != JobStatus.COMPLETED), state.status)

    def age_s(self) -> float:
        """Return the seconds since something directly in one of the folders has changed.

        A cleaning, too, changes locks, and the records of uploads that it aborts.
        """
        ours = {self.folder.lock, *(path for job in self.jobs for path in (job.lock, job.uploads))}
        folders = {self.path, *(job.path for job in self.jobs)}
        changed = []
        for path in (path for folder in folders for path in folder.iterdir() if path not in ours):
            with suppress(FileNotFoundError):  # it has just gone, which changes its folder
                changed.append(path.lstat().st_mtime)
        changed += [folder.stat().st_mtime for folder in folders]
        return max(0.0, time.time() - max(changed))


class Cleaning:
    """The job folders directly below a folder, and which of them go; those of pipelines, too.

    A folder goes by the seconds since its last change, and by the status of its job. Links in the
    root are left alone. Raise `JobFolderError` when the root is a job folder itself, or cannot be
    listed.
    """

    def __init__(self, root: Path, older_than_s: float, statuses: Collection[str]) -> None:
        if (found := _found(root)) is not None:
            kind = "a job folder" if isinstance(found.folder, JobFolder) else "that of a pipeline"
            msg = (
                f"{root} is {kind} itself. Name the folder that contains it, {root.parent}, or "
                "remove it by rm -r."
            )
            raise JobFolderError(msg)
        self._root = root
        self._older_than_s = older_than_s
        self._statuses = statuses
        self.others: list[Path] = []
        """Whatever else the root holds (once `found` has been iterated)."""

    def found(self) -> Iterator[JobOnDisk]:
        """Yield each folder, in the order of names, with its fate."""
        self.others.clear()
        for path in self._entries():
            if path.name.endswith(DOOMED):
                continue
            found = _found(path)
            if found is None:
                self.others.append(path)
            elif (job := self._looked_at(found)) is not None:
                yield job

    def remove(self, job: JobOnDisk) -> str:
        """Remove a folder that was found, and return why it stays, or an empty text.

        The folder is renamed first: it is there whole or not at all.
        """
        try:
            found = _found(job.job_dir)
            if found is None or found.age_s() < job.age_s:
                job.job_dir.lstat()  # else another cleaning was quicker
                return CHANGED
            epochs = found.epochs
            with ExitStack() as locks:
                found.hold(locks)
                if found.epochs != epochs:
                    return CHANGED
                if left_open := found.abort_uploads():  # while there are records of them
                    return left_open
                doomed = JobFolder(found.path).doomed()
                found.path.rename(doomed)
                _remove(doomed, found)
        except JobFolderLocked:
            return "a driver is at work in it"
        except FileNotFoundError:
            pass
        except (OSError, JobFolderError) as error:
            return f"it cannot be removed: {error}"
        return ""

    def go_on(self) -> Iterator[JobOnDisk]:
        """Remove what an earlier cleaning had begun to remove; yield what stays again."""
        for path in self._entries():
            if not path.name.endswith(DOOMED):
                continue
            try:
                if (found := _found(path)) is not None:
                    with held(found.folder.lock, f"the folder {path}"):
                        _remove(path, found)
                elif _is_empty(path):
                    path.rmdir()
            except (JobFolderLocked, FileNotFoundError):
                pass  # another cleaning is at it
            except OSError as error:
                stays = f"it cannot be removed: {error}"
                yield JobOnDisk(path, HALF_REMOVED, 0.0, size_bytes=0, stays=stays)

    def _entries(self) -> list[Path]:
        try:
            return sorted(self._root.iterdir())
        except OSError as error:
            msg = f"{self._root} cannot be listed: {error.strerror}. Name the root of your jobs."
            raise JobFolderError(msg) from error

    def _looked_at(self, found: _Found) -> JobOnDisk | None:
        """Return a folder with its fate; None for one that has gone meanwhile."""
        job = JobOnDisk(found.path, UNREADABLE, 0.0)
        try:
            return self._judged(found, job._replace(age_s=found.age_s()))
        except DaskprsError as error:
            return job._replace(stays=str(error))
        except OSError as error:
            if not found.path.exists():
                return None
            return job._replace(stays=f"it cannot be read: {error}")

    def _judged(self, found: _Found, job: JobOnDisk) -> JobOnDisk:
        status, folder = found.status(), found.folder
        job = job._replace(status=status)
        if not isinstance(folder, JobFolder):
            state = folder.state()
            job = job._replace(steps=0 if state is None else len(state.steps))
        if status == RUNNING or status not in self._statuses:
            return job._replace(stays=status)
        if job.age_s < self._older_than_s:
            return job._replace(stays="younger")
        output = folder.output if isinstance(folder, JobFolder) else folder.outputs
        return job._replace(
            size_bytes=used_bytes(folder.path),
            output=output if output.is_dir() and any(output.iterdir()) else None,
            has_rows=any(epochs_of(one, one.typed_spools) for one in found.jobs),
        )


def _found(path: Path) -> _Found | None:
    """Return the job folder, or that of a pipeline, at a path; None for anything else."""
    if is_job_folder(path):
        job = JobFolder(path)
        return _Found(job, job.call, [job])
    try:
        joint = joint_folder_at(path)
        if joint is None or not _is_ours(path, joint.record) or joint.lock.is_symlink():
            return None
        joint.state()  # else it is a file of the same name
        jobs = [JobFolder(one) for one in sorted(path.iterdir()) if is_job_folder(one)]
    except (OSError, JobFolderError):
        return None
    return _Found(joint, joint.record, jobs)


def is_job_folder(path: Path) -> bool:
    """Return whether a path is that of a job folder, and not of a link to one."""
    folder = JobFolder(path)
    try:
        if not _is_ours(path, folder.call) or folder.lock.is_symlink():
            return False
        return read_call(folder).keys() >= OF_A_CALL
    except (OSError, JobFolderError):
        return False


def _is_ours(folder: Path, record: Path) -> bool:
    """Say whether a path is a folder with a record, and neither is a link."""
    return stat.S_ISDIR(folder.lstat().st_mode) and stat.S_ISREG(record.lstat().st_mode)


def _status(folder: JobFolder) -> str:
    if has_begun(folder):
        return state_of(folder).status
    waits = holder(folder) is not None or folder.detached.exists()
    return RUNNING if waits else DIED


def _abort_uploads(folder: JobFolder) -> str:
    """Abort what a driver has left open in a store; return what is still open, and why."""
    if not folder.uploads.is_dir() or folder.uploads.is_symlink():
        return ""
    return abort_uploads(folder.uploads)


def _is_empty(path: Path) -> bool:
    return not path.is_symlink() and path.is_dir() and not any(path.iterdir())


def _remove(doomed: Path, found: _Found) -> None:
    """Remove a folder that was renamed."""
    last = [doomed / one.name for one in (found.folder.lock, found.last)]
    for path in [one for one in doomed.iterdir() if one not in last]:
        remove_tree(path)
    for path in last:
        path.unlink(missing_ok=True)
    doomed.rmdir()
