"""Regular files in folders that other programs write to: opened without blocking, size-limited.

Opening a FIFO blocks until another process opens its other end, and reading a device may never
end. Neither belongs in a folder of daskprs, so both are rejected before they are opened: paths of
anything but a regular file are a `JobFolderError`.
"""

from __future__ import annotations

import json
import os
import stat
from typing import IO, TYPE_CHECKING, Any

from daskprs.errors import JobFolderError

if TYPE_CHECKING:
    from pathlib import Path

MOST_RECORD_BYTES = 64 << 20
"""Maximum size in bytes of a small record of daskprs, such as a ticket or a request."""
KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFDIR: "a folder",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_regular(path: Path) -> IO[bytes]:
    """Open a regular file for reading."""
    return os.fdopen(opened(path, os.O_RDONLY), "rb")


def append_regular(path: Path) -> IO[str]:
    """Open a regular file for appending text; create the file if it is missing."""
    fd = opened(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    return os.fdopen(fd, "a", encoding="utf-8", errors="backslashreplace")


def opened(path: Path, flags: int, mode: int = 0o666) -> int:
    """Open a regular file, or a link to one, and return its descriptor; new programs close it."""
    try:
        _check(path, path.stat())  # to open a device may do something to it
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    flags |= os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    fd = os.open(path, flags, mode)
    try:
        _check(path, os.fstat(fd))
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_regular(path: Path, most_bytes: int = MOST_RECORD_BYTES) -> bytes:
    """Return the content of a regular file; a larger one is a `JobFolderError`."""
    with open_regular(path) as file:
        content = b"" if os.fstat(file.fileno()).st_size > most_bytes else file.read(most_bytes + 1)
        size = os.fstat(file.fileno()).st_size
    if size > most_bytes:
        msg = (
            f"{path}: it is larger than any that daskprs writes, got {size} bytes of at most "
            f"{most_bytes}. Put back the file that belongs there, or use another folder."
        )
        raise JobFolderError(msg)
    return content


def read_json(path: Path, most_bytes: int = MOST_RECORD_BYTES) -> Any:
    """Return the JSON value in a regular file; content that is not JSON is a `ValueError`."""
    content = read_regular(path, most_bytes)
    try:
        return json.loads(content)
    except RecursionError:
        msg = "its JSON is nested too deeply"
        raise ValueError(msg) from None


def _check(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = KINDS.get(stat.S_IFMT(status.st_mode), "of another kind")
        msg = (
            f"{path}: it is {kind}, and a regular file belongs there. Remove it, or use another "
            "folder."
        )
        raise JobFolderError(msg)
