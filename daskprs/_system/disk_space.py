"""Disk space: checks before writing, and messages for a full disk."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from daskprs._system.scarcity import largest_file
from daskprs.errors import OutputError

FULL = (errno.ENOSPC, errno.EDQUOT)
BROKEN = (errno.EIO, errno.EROFS)
BLOCK_BYTES = 512
"""The unit of ``st_blocks``, whatever the file system."""


def check_room(folder: Path, size: int) -> None:
    """Refuse to write more output than fits on the disk."""
    free = shutil.disk_usage(folder).free
    if free < size:
        needed, there = f"{size >> 20} MiB", f"{free >> 20} MiB"
        if needed == there or size < 1 << 20:
            needed, there = f"{size:,} bytes", f"{free:,} bytes"
        msg = (
            f"the output needs {needed} more in {folder}, and {there} are free. Make room, and "
            "resume the job."
        )
        raise OutputError(msg)


def used_bytes(path: Path) -> int:
    """Return the disk space that a file, or a folder with all in it, would free.

    Links are not followed. A file with another name elsewhere, and a sparse one's holes, take none,
    and neither does what cannot be looked at.
    """
    used, waiting = 0, [path]
    while waiting:
        here = waiting.pop()
        with suppress(OSError):
            status = here.lstat()
            if stat.S_ISDIR(status.st_mode):
                waiting += here.iterdir()
            elif status.st_nlink == 1:
                used += status.st_blocks * BLOCK_BYTES
    return used


def no_room(folder: Path, error: OSError | str) -> str:
    """Return the message for results that cannot be written to a job folder."""
    free = ""
    with suppress(OSError):  # the folder itself may be gone
        if is_full(error):
            free = f" ({shutil.disk_usage(folder).free:,} bytes are free)"
    return (
        f"results cannot be written to {folder}: {error}{free}. What was committed is kept: "
        f"{what_to_do(error)}"
    )


def is_of_disk(error: BaseException) -> bool:
    """Return whether an error is that of a disk, and no fault of the call or of daskprs."""
    return isinstance(error, OSError) and (error.errno in BROKEN or is_full(error))


def no_disk_to_begin(folder: Path, error: OSError, needed_bytes: int, next_step: str) -> str:
    """Return the message for a disk that is full, or fails, before the first mini-batch.

    The path of the error says which disk that is, where it has one: that of a worker may be
    another one. `needed_bytes` is what the input needs in the job folder; 0: unknown.
    """
    if not is_full(error):
        return (
            f"the job has not begun, since a disk fails: {error}. Mend it, or use another folder, "
            f"and {next_step}."
        )
    full = [name for name in (error.filename2, error.filename) if isinstance(name, str)]
    place = full[0] if full else str(folder)
    free = ""
    if Path(place).is_relative_to(folder):
        place = str(folder)
        with suppress(OSError):
            free = f" ({shutil.disk_usage(folder).free:,} bytes are free)"
        if needed_bytes:
            free += f". The input needs about {needed_bytes:,} bytes there"
    return (
        f"the job has not begun, since the disk of {place} is full: {error}{free}. Make room "
        f"there, or use another folder, and {next_step}."
    )


def what_to_do(error: OSError | str) -> str:
    """Return the next step after a write that failed."""
    if is_full(error):
        return "make room, and resume the job."
    if os.strerror(errno.EFBIG) in str(error) and (limit := largest_file()):
        return f"{limit} Then resume the job."
    return "mend the folder, and resume the job."


def is_full(error: OSError | str) -> bool:
    """Return whether an error reports a full disk or quota; agents send the error as text."""
    return any(os.strerror(number) in str(error) for number in FULL)
