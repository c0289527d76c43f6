"""Files of a job for callers: list, send and follow them, and never send a file outside."""

from __future__ import annotations

import asyncio
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from starlette.responses import StreamingResponse

from daskprs.errors import JobFolderError
from daskprs.serve.http_errors import not_found
from daskprs.serve.responses import FileAnswer, FilesAnswer
from daskprs.system.regular_files import open_regular

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from starlette.types import Receive, Scope, Send

CHUNK_BYTES = 256 << 10
MOST_LISTED = 10_000
LOOK_EVERY_S = 0.25


def listed(folder: Path) -> FilesAnswer:
    """Return the files below a folder, by path; none when the folder has become a link."""
    found: list[FileAnswer] = []
    if folder.resolve() != folder:
        return FilesAnswer(value=found, isTruncated=False)
    for path in _files(folder):
        if len(found) == MOST_LISTED:
            return FilesAnswer(value=found, isTruncated=True)
        with suppress(OSError):
            size = path.stat(follow_symlinks=False).st_size
            name = os.fsencode(path.relative_to(folder)).decode(errors="replace")
            found.append(FileAnswer(path=name, sizeBytes=size))
    return FilesAnswer(value=found, isTruncated=False)


def _files(folder: Path) -> Iterator[Path]:
    """Yield plain files in order, without links."""
    for here, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(here, name)
            with suppress(OSError):
                if stat.S_ISREG(path.lstat().st_mode):
                    yield path


def opened(folder: Path, relative: str) -> IO[bytes]:
    """Open a file below a folder.

    The location of the opened file is checked, so that no link leads elsewhere, not even a link
    made meanwhile. Opening a pipe does not block. The path of `folder` must hold no links: it is
    not resolved here, because the folder may have become a link.

    Raises
    ------
    Refusal
        When the folder does not hold that file.

    """
    try:
        fd = os.open(folder / relative, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (OSError, ValueError):
        raise not_found("file", relative, "path") from None
    place = Path(f"/proc/self/fd/{fd}").readlink()
    if stat.S_ISREG(os.fstat(fd).st_mode) and place.is_relative_to(folder):
        return os.fdopen(fd, "rb")
    os.close(fd)
    raise not_found("file", relative, "path")


class SentFile(StreamingResponse):
    """Sends an open file, and always closes it."""

    def __init__(self, file: IO[bytes], **more: Any) -> None:
        super().__init__(_chunks(file), **more)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._file.close()


async def _chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
        yield chunk


async def followed(path: Path, goes_on: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Yield the content of a file, and additions to it while `goes_on` returns true."""
    at = 0
    while True:
        last = not await asyncio.to_thread(goes_on)  # first: later reads include all before
        while chunk := await asyncio.to_thread(_read, path, at):
            at += len(chunk)
            yield chunk
        if last:
            return
        await asyncio.sleep(LOOK_EVERY_S)


def _read(path: Path, at: int) -> bytes:
    try:
        with open_regular(path) as file:
            file.seek(at)
            return file.read(CHUNK_BYTES)
    except (OSError, JobFolderError):
        return b""
