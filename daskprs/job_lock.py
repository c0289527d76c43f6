"""One driver at a time: the lock of a job folder, and the epochs of those that held it."""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from daskprs.errors import JobFolderError, JobFolderLocked
from daskprs.regular_files import opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from daskprs.job_folder import JobFolder

HOLDER_BYTES = 4096
MOST_EPOCHS = 999_999
"""The highest number of an epoch; the name of a file with a higher one is none of ours."""
_NUMBERED = re.compile(r"([a-z]+)\.([1-9][0-9]{0,5})")
LOOKED_AT, LOOKED_AT_S = 5, 0.01


@contextmanager
def locked(folder: JobFolder) -> Iterator[int]:
    """Hold the job folder, and yield the number of this epoch.

    The kernel lets go of the lock when its holder dies, so that a stale one never stands in the
    way. Each epoch writes a journal and spools of its own; its number is claimed by creating a
    file exclusively, and a driver that finds a higher one than its own has lost the folder.

    Raises
    ------
    JobFolderLocked
        When another driver is at work in it.

    """
    with held(folder.lock, f"the job folder {folder}"):
        number = latest_epoch(folder) + 1
        while True:
            _refuse_more_epochs(folder, number)
            try:
                folder.epoch(number).touch(exist_ok=False)
                break
            except FileExistsError:
                number += 1
        yield number


def latest_epoch(folder: JobFolder) -> int:
    """Return the number of the newest epoch; 0 when there was none.

    The files of an epoch count, too: the file that claims the epoch may have been removed.
    """
    files = (folder.epoch, folder.journal, folder.spools, folder.typed_spools)
    return max((epoch for path_of in files for epoch in epochs_of(folder, path_of)), default=0)


def begun_epochs(folder: JobFolder) -> list[int]:
    """Return the numbers of the epochs that have a journal, in order."""
    return epochs_of(folder, folder.journal)


def epochs_of(folder: JobFolder, path_of: Callable[[int], Path]) -> list[int]:
    """Return the epochs, in order, for which the job folder has an entry of this kind.

    Parameters
    ----------
    folder
        The job folder.
    path_of
        Gives the path of the entry of an epoch.

    """
    stem = path_of(0).stem
    try:
        with os.scandir(folder.path) as entries:
            found = [_NUMBERED.fullmatch(entry.name) for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(one[2]) for one in found if one is not None and one[1] == stem)


def _refuse_more_epochs(folder: JobFolder, number: int) -> None:
    if number > MOST_EPOCHS:
        msg = (
            f"{folder.epoch(MOST_EPOCHS)}: it is the last epoch that a job folder may have. Remove "
            "it if no driver has made it, or use another job_dir."
        )
        raise JobFolderError(msg)


def holder(folder: JobFolder) -> str | None:
    """Return who is at work in a job folder; None: nobody is."""
    try:
        fd = opened(folder.lock, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _described(os.pread(fd, HOLDER_BYTES, 0))
    finally:
        os.close(fd)
    return None


def has_begun(folder: JobFolder) -> bool:
    """Say whether a job has begun in this folder.

    An epoch without a journal is that of a driver that was refused before it began: what it was
    refused for can be put right, and the folder used as if it were new.
    """
    return bool(begun_epochs(folder))


@contextmanager
def held(path: Path, what: str) -> Iterator[None]:
    """Hold a lock file, with a description of the holder in it."""
    fd = _lock(path, what)
    try:
        with suppress(OSError):  # on a full disk the holder has no name, and holds it all the same
            os.ftruncate(fd, 0)
            os.pwrite(fd, json.dumps(_holder()).encode(), 0)
        yield
    finally:
        os.close(fd)


@contextmanager
def claimed(path: Path, what: str) -> Iterator[None]:
    """Hold a lock file that is there only as long as it is held."""
    with held(path, what):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _lock(path: Path, what: str) -> int:
    while True:
        try:
            fd = opened(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            msg = f"{what} cannot be locked: {error}. Use a folder that you can write to."
            raise JobFolderError(msg) from error
        try:
            _flock(fd)
            if _is_still_there(fd, path):
                return fd
        except BlockingIOError as error:
            holder = _described(os.pread(fd, HOLDER_BYTES, 0))
            os.close(fd)
            msg = (
                f"another driver is at work on {what}: {holder}. Wait for it, end it, or use "
                "another folder."
            )
            raise JobFolderLocked(msg) from error
        except OSError as error:
            os.close(fd)
            msg = f"{what} cannot be locked: {error}. Use a folder on another file system."
            raise JobFolderError(msg) from error
        os.close(fd)


def _flock(fd: int) -> None:
    """Take a lock; who only looks whether it is held lets go of it in microseconds."""
    for _ in range(LOOKED_AT):
        with suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(LOOKED_AT_S)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_still_there(fd: int, path: Path) -> bool:
    """Say whether an open file is the one of that name.

    A claim is removed by its holder: who opened it just before holds the lock of a file that
    nobody else will ever see.
    """
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def boot_id() -> str:
    """Return what the kernel calls itself since it was started; empty where it does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _holder() -> dict[str, object]:
    return {"host": socket.gethostname(), "pid": os.getpid(), "boot": boot_id()}


def _described(written: bytes) -> str:
    try:
        holder = json.loads(written)
        return f"process {holder['pid']} on {holder['host']}"
    except (ValueError, KeyError, TypeError):
        return "a process that has not said its name"
