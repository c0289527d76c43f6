"""Files of a job for callers: list, open and follow them, and never open a file outside."""

from __future__ import annotations

import asyncio
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import IO, TYPE_CHECKING, Any

from daskprs._folders.unfinished import is_unfinished
from daskprs._serve.http_errors import not_found
from daskprs._system.regular_files import open_unlinked, unlinked_folder
from daskprs.errors import JobFolderError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

CHUNK_BYTES = 256 << 10
MOST_LISTED = 10_000
MOST_LOOKED_AT = 100_000
"""Entries of all folders that one listing looks at: a job can make any number of them."""
MOST_DEPTH = 50
LOOK_EVERY_S = 0.25
FOLLOWING_THREADS = 4
MOST_LOOKS_PER_S = 200


def listed(folder: Path, within: Sequence[Path] | None = None) -> dict[str, Any]:
    """Return the files below a folder, by path; none when a part of its path is a link.

    If folders below it are given, only their files are returned. Files of daskprs that are there
    while a job runs are left out.

    The form is that of `bodies.FilesAnswer`, whose making would take longer than the looking.
    """
    found: list[dict[str, Any]] = []
    start = len(os.fspath(folder)) + 1
    is_cut, left = False, MOST_LOOKED_AT
    waiting = [(one, 0) for one in reversed([folder] if within is None else within)]
    while waiting and len(found) <= MOST_LISTED:
        here, depth = waiting.pop()
        folders: list[str] = []
        for name, status in _entries(here, left):
            left -= 1
            if is_unfinished(name):
                continue
            if len(found) > MOST_LISTED:
                break
            if stat.S_ISDIR(status.st_mode):
                folders.append(name)
            elif stat.S_ISREG(status.st_mode):
                path = os.fsencode(os.path.join(here, name)[start:]).decode(errors="replace")  # noqa: PTH118 - as many as there are files
                found.append({"path": path, "sizeBytes": status.st_size})
        if depth < MOST_DEPTH:
            waiting += [(here / name, depth + 1) for name in reversed(folders)]
        is_cut = is_cut or left <= 0 or (depth == MOST_DEPTH and bool(folders))
    is_cut = is_cut or len(found) > MOST_LISTED
    return {"value": found[:MOST_LISTED], "isTruncated": is_cut}


def _entries(folder: Path, most: int) -> list[tuple[str, os.stat_result]]:
    """Return the entries of a folder by name, links as they are; none if the folder is gone."""
    found = []
    with suppress(OSError):
        way = unlinked_folder(folder)
        try:
            fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=way)
        finally:
            os.close(way)
        try:
            with os.scandir(fd) as entries:
                for entry in islice(entries, most):
                    with suppress(OSError):  # it is gone again
                        found.append((entry.name, entry.stat(follow_symlinks=False)))
        finally:
            os.close(fd)
    return sorted(found)


def folders_in(folder: Path) -> list[Path]:
    """Return the folders in a folder; a link is none."""
    entries = _entries(folder, MOST_LOOKED_AT)
    return [folder / name for name, status in entries if stat.S_ISDIR(status.st_mode)]


def opened(folder: Path, relative: str, within: Sequence[Path] | None = None) -> IO[bytes]:
    """Open a file below a folder, and below one of the folders in it if such are given.

    No link is followed, neither in `relative` nor in the path of the folder: the job may have made
    it meanwhile.
    """
    try:
        if {"", ".", ".."}.intersection(relative.split("/")):
            raise not_found("file", relative, "path")
        path = folder / relative
        if within is not None and not any(path.is_relative_to(one) for one in within):
            raise not_found("file", relative, "path")
        return open_unlinked(path)
    except (OSError, ValueError, JobFolderError):
        raise not_found("file", relative, "path") from None


class Followers:
    """Follows files for any number of callers.

    It has threads of its own, so that followers keep no other request waiting. With many followers
    each file is looked at less often, so that all together cost as little as a few.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(FOLLOWING_THREADS, "daskprs-follow")
        self._count = 0

    async def follow(self, path: Path, goes_on: Callable[[], bool]) -> AsyncIterator[bytes]:
        """Yield the content of a file, and additions to it while `goes_on` returns true."""
        loop = asyncio.get_running_loop()
        at, last = 0, False
        self._count += 1
        try:
            while not last:
                # first: later reads include all before
                last = not await loop.run_in_executor(self._threads, goes_on)
                while chunk := await loop.run_in_executor(self._threads, _read, path, at):
                    at += len(chunk)
                    yield chunk
                if not last:
                    await asyncio.sleep(max(LOOK_EVERY_S, self._count / MOST_LOOKS_PER_S))
        finally:
            self._count -= 1


def _read(path: Path, at: int) -> bytes:
    try:
        with open_unlinked(path) as file:
            file.seek(at)
            return file.read(CHUNK_BYTES)
    except (OSError, JobFolderError):
        return b""
