"""Cleaning: the job folders in a root of jobs, their age and status, and which of them go."""

from __future__ import annotations

import shutil
import stat
import time
from typing import TYPE_CHECKING, NamedTuple

from daskprs.errors import DaskprsError, JobFolderError, JobFolderLocked
from daskprs.folders.job_folder import DOOMED, JobFolder
from daskprs.folders.job_lock import epochs_of, has_begun, holder, latest_epoch
from daskprs.job.request import read_call
from daskprs.job.result import RUNNING
from daskprs.job.status import DIED, state_of
from daskprs.output.publish.open_uploads import abort_uploads
from daskprs.system.disk_space import used_bytes
from daskprs.system.file_lock import held

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

UNREADABLE = "Unreadable"
"""A job whose journal cannot be read, as that of another version."""
HALF_REMOVED = "Half removed"
"""A job folder that an earlier cleaning had begun to remove."""
OF_A_CALL = {"form", "script", "options"}
"""Keys of every saved call."""


class JobOnDisk(NamedTuple):
    """A job folder, as a cleaning has found it."""

    job_dir: Path
    status: str
    """As `job.status` has it; ``Died``, too, where the driver was gone before the job began."""
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


class Cleaning:
    """The job folders directly below a folder, and which of them go.

    Parameters
    ----------
    root
        The root of jobs. Links in it are left alone.
    older_than_s
        Seconds since the last change of a folder that goes.
    statuses
        The statuses of jobs that go.

    Raises
    ------
    JobFolderError
        When the root is a job folder itself, or cannot be listed.

    """

    def __init__(self, root: Path, older_than_s: float, statuses: Collection[str]) -> None:
        if is_job_folder(root):
            msg = (
                f"{root} is a job folder itself. Name the folder that contains it, {root.parent}, "
                "or remove it by rm -r."
            )
            raise JobFolderError(msg)
        self._root = root
        self._older_than_s = older_than_s
        self._statuses = statuses
        self.others: list[Path] = []
        """What is not a job folder (once `found` has been iterated)."""

    def found(self) -> Iterator[JobOnDisk]:
        """Yield each job folder, in the order of names, with its fate."""
        self.others.clear()
        for path in self._entries():
            if path.name.endswith(DOOMED):
                continue
            if not is_job_folder(path):
                self.others.append(path)
            elif (job := self._looked_at(JobFolder(path))) is not None:
                yield job

    def remove(self, job: JobOnDisk) -> str:
        """Remove a job folder that was found, and return why it stays, or an empty text.

        The folder is renamed first: it is there whole or not at all.
        """
        folder = JobFolder(job.job_dir)
        try:
            epoch = latest_epoch(folder)
            if _age_s(folder) < job.age_s:
                return "it has changed meanwhile"
            with held(folder.lock, f"the job folder {folder}"):
                if latest_epoch(folder) != epoch:
                    return "it has changed meanwhile"
                left_open = _abort_uploads(folder)  # while there are records of them
                if left_open:
                    return left_open
                folder.path.rename(folder.doomed())
                _remove(JobFolder(folder.doomed()))
        except JobFolderLocked:
            return "a driver is at work in it"
        except FileNotFoundError:
            pass  # another cleaning was quicker
        except (OSError, JobFolderError) as error:
            return f"it cannot be removed: {error}"
        return ""

    def go_on(self) -> Iterator[JobOnDisk]:
        """Remove what an earlier cleaning had begun to remove; yield what stays again."""
        for path in self._entries():
            if not path.name.endswith(DOOMED):
                continue
            folder = JobFolder(path)
            try:
                if is_job_folder(path):
                    with held(folder.lock, f"the job folder {folder}"):
                        _remove(folder)
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

    def _looked_at(self, folder: JobFolder) -> JobOnDisk | None:
        """Return a job folder with its fate; None for one that has gone meanwhile."""
        job = JobOnDisk(folder.path, UNREADABLE, 0.0)
        try:
            return self._judged(folder, job._replace(age_s=_age_s(folder)))
        except DaskprsError as error:
            return job._replace(stays=str(error))
        except OSError as error:
            if not folder.path.exists():
                return None
            return job._replace(stays=f"it cannot be read: {error}")

    def _judged(self, folder: JobFolder, job: JobOnDisk) -> JobOnDisk:
        status = _status(folder)
        job = job._replace(status=status)
        if status == RUNNING or status not in self._statuses:
            return job._replace(stays=status)
        if job.age_s < self._older_than_s:
            return job._replace(stays="younger")
        output = folder.output
        return job._replace(
            size_bytes=used_bytes(folder.path),
            output=output if output.is_dir() and any(output.iterdir()) else None,
            has_rows=bool(epochs_of(folder, folder.typed_spools)),
        )


def is_job_folder(path: Path) -> bool:
    """Return whether a path is that of a job folder, and not of a link to one."""
    folder = JobFolder(path)
    try:
        if not stat.S_ISDIR(path.lstat().st_mode) or not stat.S_ISREG(folder.call.lstat().st_mode):
            return False
        if folder.lock.is_symlink():
            return False
        return read_call(folder).keys() >= OF_A_CALL
    except (OSError, JobFolderError):
        return False


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


def _age_s(folder: JobFolder) -> float:
    """Return the seconds since something directly in a job folder has changed.

    A cleaning, too, changes the lock, and the records of uploads that it aborts.
    """
    ours = {folder.lock, folder.uploads}
    changed = [folder.path.stat().st_mtime]
    changed += [path.lstat().st_mtime for path in folder.path.iterdir() if path not in ours]
    return max(0.0, time.time() - max(changed))


def _is_empty(path: Path) -> bool:
    return not path.is_symlink() and path.is_dir() and not any(path.iterdir())


def _remove(folder: JobFolder) -> None:
    """Remove a job folder, the saved call last: by that what is left of it is known."""
    last = folder.lock, folder.call
    for path in [one for one in folder.path.iterdir() if one not in last]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    for path in last:
        path.unlink(missing_ok=True)
    folder.path.rmdir()
