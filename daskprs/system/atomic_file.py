"""Files that appear complete or not at all."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


CANNOT_SYNC_FOLDERS = {errno.EINVAL, errno.ENOTSUP}
"""Errors of file systems that cannot sync a folder (network and FUSE ones)."""


@contextmanager
def whole_file(path: Path, *, durable: bool = True) -> Iterator[IO[bytes]]:
    """Open a file for writing that appears under its name complete, or not at all.

    A file that can be made again need not be `durable`: a loss of power may truncate it.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    if durable:
        sync_folder(path.parent)


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
