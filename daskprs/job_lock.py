"""One driver at a time: the lock of a job folder, and the epochs of those that held it."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from daskprs.errors import JobFolderLocked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs.job_folder import JobFolder


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
            try:
                folder.epoch(number).touch(exist_ok=False)
                break
            except FileExistsError:
                number += 1
        yield number


def latest_epoch(folder: JobFolder) -> int:
    """Return the number of the newest epoch; 0 when there was none."""
    prefix = folder.epoch(0).stem
    numbers = [int(path.suffix[1:]) for path in folder.path.glob(f"{prefix}.*")]
    return max(numbers, default=0)


@contextmanager
def held(path: Path, what: str) -> Iterator[None]:
    """Hold a lock file, with a description of the holder in it."""
    file = _lock(path, what)
    try:
        file.truncate(0)
        file.write(json.dumps(_holder()))
        file.flush()
        yield
        file.truncate(0)
    finally:
        file.close()


def _lock(path: Path, what: str) -> IO[str]:
    file = path.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.seek(0)
        holder = file.read() or "unknown"
        file.close()
        msg = (
            f"another driver is at work on {what} (holder: {holder}). Wait for it, end it, or use "
            "another job_dir or output_dir."
        )
        raise JobFolderLocked(msg) from error
    return file


def _holder() -> dict[str, object]:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return {"host": socket.gethostname(), "pid": os.getpid(), "boot": boot}
