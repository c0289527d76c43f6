"""Regular files in folders that other programs write to: opened without blocking, size-limited.

Opening a FIFO blocks until another process opens its other end, and reading a device may never
end. Neither belongs in a folder of daskprs, so both are rejected before they are opened: paths of
anything but a regular file are a `JobFolderError`.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from contextlib import suppress
from tempfile import NamedTemporaryFile
from typing import IO, TYPE_CHECKING, Any

from daskprs.errors import JobFolderError

if TYPE_CHECKING:
    from pathlib import Path

MOST_RECORD_BYTES = 64 << 20
"""Maximum size in bytes of a small record of daskprs, such as a ticket or a request."""
_AS_IT_IS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""A folder that is only passed through may be closed to its listing."""
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
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


def open_unshared(path: Path, owner: int) -> IO[bytes]:
    """Open a regular file of the user with the id `owner`, or of this one, that nothing shares.

    A file that other users have made, or may write to, is a `JobFolderError`.
    """
    file = open_regular(path)
    status = os.fstat(file.fileno())
    if status.st_uid in (owner, os.geteuid()) and not status.st_mode & OTHERS_WRITE:
        return file
    file.close()
    why = "other users may write to it"
    if status.st_uid not in (owner, os.geteuid()):
        why = f"another user, uid {status.st_uid}, has made it"
    msg = (
        f"{path}: {why}, and it has "
        "Python objects in it: to load them can run code. Start the job again in a new folder that "
        "only you can write to."
    )
    raise JobFolderError(msg)


def keep_to_owner(file: IO[bytes]) -> None:
    """Let only the owner write to an open file, whatever the umask says, if the mount can."""
    with suppress(OSError):
        os.fchmod(file.fileno(), os.fstat(file.fileno()).st_mode & 0o777 & ~OTHERS_WRITE)


def owner_in(folder: Path) -> int | None:
    """Return the user who alone can write to the files that this process makes in a folder.

    None where the mount gives all files one owner or one mode (CIFS, FUSE, an NFS that squashes
    users): there, whoever can write to the folder can write to its files, and nothing shows it.
    """
    try:
        with NamedTemporaryFile(dir=folder) as file:
            status = os.fstat(file.fileno())
    except OSError:  # it is full, or gone: a file that is read will be looked at
        return os.geteuid()
    is_kept = status.st_uid == os.geteuid() and not status.st_mode & OTHERS_WRITE
    return status.st_uid if is_kept else None


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
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise _wrong_kind(path, "a link to itself") from error
    flags |= os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    return _checked(path, os.open(path, flags, mode))


def open_unlinked(path: Path) -> IO[bytes]:
    """Open a regular file for reading by an absolute path that has no symbolic link in it."""
    folder = unlinked_folder(path.parent)
    try:
        fd = os.open(path.name, os.O_RDONLY | _AS_IT_IS, dir_fd=folder)
    finally:
        os.close(folder)
    return os.fdopen(_checked(path, fd), "rb")


def unlinked_folder(path: Path) -> int:
    """Return the descriptor of a folder, by an absolute path that has no symbolic link in it.

    Each folder is opened from the one above. So a path that another process changes meanwhile
    leads elsewhere at no time.
    """
    if ".." in path.parts:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    fd = os.open("/", _FOLDER)
    for part in path.parts[1:]:
        above = fd
        try:
            fd = os.open(part, _FOLDER, dir_fd=above)
        finally:
            os.close(above)
    return fd


def read_regular(path: Path, most_bytes: int = MOST_RECORD_BYTES) -> bytes:
    """Return the content of a regular file; a larger one is a `JobFolderError`."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        # Not all that is allowed at once: `read` takes the memory for it, full or not.
        content = b"" if size > most_bytes else file.read(size + 1)
        if len(content) > size:  # it has grown meanwhile
            content += file.read(most_bytes + 1 - len(content))
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


def _checked(path: Path, fd: int) -> int:
    """Return the descriptor of a file that has just been opened, if it is a regular one."""
    try:
        _check(path, os.fstat(fd))
    except BaseException:  # no caller has the descriptor yet
        os.close(fd)
        raise
    return fd


def _check(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _wrong_kind(path, KINDS.get(stat.S_IFMT(status.st_mode), "of another kind"))


def _wrong_kind(path: Path, kind: str) -> JobFolderError:
    return JobFolderError(
        f"{path}: it is {kind}, and a regular file belongs there. Remove it, or use another folder."
    )
