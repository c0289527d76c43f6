"""Files of a job for callers: listed, sent, and followed as they grow; never one outside."""

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
    """Return the files below a folder, by path; none where a link has taken its place."""
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
    """Yield plain files in order; links are no files of the job."""
    for here, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(here, name)
            with suppress(OSError):
                if stat.S_ISREG(path.lstat().st_mode):
                    yield path


def opened(folder: Path, relative: str) -> IO[bytes]:
    """Open a file below a folder.

    What was opened is asked where it lies, so that no link, and none that is put there meanwhile,
    leads elsewhere. A pipe is not waited for. The folder is one without links on the way to it: it
    is not resolved here, for it may have become one.

    Raises
    ------
    Refusal
        When there is no such file in the folder, whatever is elsewhere.

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
    """Sends an open file, and closes it whatever comes."""

    def __init__(self, file: IO[bytes], **more: Any) -> None:
        super().__init__(_chunks(file), **more)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._file.close()


async def _chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
        yield chunk


async def followed(path: Path, goes_on: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Yield what is in a file, and what is added as long as something `goes_on`."""
    at = 0
    while True:
        last = not await asyncio.to_thread(goes_on)  # first: what came until then is read
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
