"""Files of a job for callers: list, send and follow them, and never send a file outside."""

from __future__ import annotations

import asyncio
import os
import stat
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from starlette.responses import StreamingResponse

from daskprs.errors import JobFolderError
from daskprs.serve.bodies import FileAnswer, FilesAnswer
from daskprs.serve.http_errors import not_found
from daskprs.system.regular_files import open_regular

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from starlette.types import Receive, Scope, Send

CHUNK_BYTES = 256 << 10
MOST_LISTED = 10_000
LOOK_EVERY_S = 0.25


def listed(folder: Path) -> FilesAnswer:
    """Return the files below a folder, by path; none when the folder has become a link."""
    files = _files(folder) if folder.resolve() == folder else iter(())
    found = list(islice(files, MOST_LISTED))
    return FilesAnswer(value=found, isTruncated=next(files, None) is not None)


def _files(folder: Path) -> Iterator[FileAnswer]:
    """Yield plain files in order, without links."""
    for here, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(here, name)
            with suppress(OSError):
                status = path.lstat()
                if stat.S_ISREG(status.st_mode):
                    shown = os.fsencode(path.relative_to(folder)).decode(errors="replace")
                    yield FileAnswer(path=shown, sizeBytes=status.st_size)


def opened(folder: Path, relative: str) -> IO[bytes]:
    """Open a file below a folder.

    The location of the opened file is checked, so that no link leads elsewhere, not even a link
    made meanwhile. The path of `folder` must hold no links: it is
    not resolved here, because the folder may have become a link.
    """
    try:
        file = open_regular(folder / relative)
    except (OSError, ValueError, JobFolderError):
        raise not_found("file", relative, "path") from None
    if Path(f"/proc/self/fd/{file.fileno()}").readlink().is_relative_to(folder):
        return file
    file.close()
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
