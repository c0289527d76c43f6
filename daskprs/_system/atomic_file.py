"""Files that appear complete or not at all."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import threading
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from daskprs._system.regular_files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


CANNOT_SYNC_FOLDERS = {errno.EINVAL, errno.ENOTSUP}
"""Errors of file systems that cannot sync a folder (network and FUSE ones)."""
CANNOT_EXCHANGE = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP}
AT_WORKING_DIRECTORY, RENAME_EXCHANGE = -100, 2
"""Constants of Linux, which Python has no names for."""


@contextmanager
def whole_file(path: Path, *, durable: bool = True) -> Iterator[IO[bytes]]:
    """Open a file for writing that appears under its name complete, or not at all.

    A file that can be made again need not be `durable`: a loss of power may truncate it.
    """
    # Processes and threads may write the same file at the same time: each has a part of its own.
    part = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_native_id()}.part")
    part.unlink(missing_ok=True)
    try:
        with part.open("xb") as file:  # neither a link nor a FIFO that stands there is opened
            yield file
            try:
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            except OSError as error:
                error.filename = str(path)  # such errors name no file
                raise
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    if durable:
        sync_folder(path.parent)


def write_json(path: Path, value: Any, *, indent: int | None = None, durable: bool = True) -> None:
    """Write a value as JSON into a file that appears whole."""
    with whole_file(path, durable=durable) as file:
        file.write(json.dumps(value, indent=indent).encode())


def write_text(path: Path, text: str, *, durable: bool = True) -> None:
    """Write text into a file that appears whole; what UTF-8 cannot encode is escaped."""
    with whole_file(path, durable=durable) as file:
        file.write(text.encode(errors="backslashreplace"))


def sync_file(file: Path) -> None:
    """Make the bytes of a file durable; another process may have written them."""
    with open_regular(file) as opened:
        os.fdatasync(opened.fileno())


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in CANNOT_SYNC_FOLDERS:
            raise
    finally:
        os.close(fd)


def exchanged(one: Path, other: Path) -> bool:
    """Exchange two files or folders in one step; return whether the file system can do that."""
    system = ctypes.CDLL(None, use_errno=True)
    if not hasattr(system, "renameat2"):  # an old C library
        return False
    here = ctypes.c_int(AT_WORKING_DIRECTORY)
    flags = ctypes.c_uint(RENAME_EXCHANGE)
    if system.renameat2(here, os.fsencode(one), here, os.fsencode(other), flags) == 0:
        return True
    number = ctypes.get_errno()
    if number in CANNOT_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), str(one), None, str(other))
