"""A file as an answer: the whole file, a part of it, or nothing where the caller has it already."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from datetime import UTC
from email.utils import formatdate, parsedate_to_datetime
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from daskprs._serve.http_errors import Refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.datastructures import Headers
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

LOG = logging.getLogger(__name__)
CHUNK_BYTES = 256 << 10
_RANGE = re.compile(r"\s*bytes\s*=\s*([0-9]{0,18})\s*-\s*([0-9]{0,18})\s*", re.IGNORECASE)
_ENTITY_TAG = re.compile(r'"[^"]*"')
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9!#$&+.^_`|~ -]")


def answer_with(file: IO[bytes], name: str, request: Request) -> Response:
    """Return the answer to a request for an open file, which the answer closes."""
    try:
        return _answer(file, name, request)
    except BaseException:  # without an answer, nothing else closes the file
        file.close()
        raise


def _answer(file: IO[bytes], name: str, request: Request) -> Response:
    found, asked = os.fstat(file.fileno()), request.headers
    size = found.st_size
    headers = {
        "Accept-Ranges": "bytes",
        "ETag": f'"{found.st_ino:x}-{found.st_mtime_ns:x}-{size:x}"',
        "Last-Modified": formatdate(int(found.st_mtime), usegmt=True),
        "Content-Disposition": _disposition(name),
        "X-Content-Type-Options": "nosniff",
    }
    if _has_it(asked, headers["ETag"], int(found.st_mtime)):
        file.close()
        return Response(None, 304, headers)
    if request.method == "HEAD":
        return SentFile(file, range(0), {**headers, "Content-Length": str(size)})
    is_same = asked.get("If-Range") in {None, headers["ETag"], headers["Last-Modified"]}
    part = _part(asked.get("Range", ""), size) if is_same else None
    if part is None:
        return SentFile(file, range(size), {**headers, "Content-Length": str(size)})
    headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{size}"
    return SentFile(file, part, {**headers, "Content-Length": str(len(part))}, status_code=206)


def _has_it(asked: Headers, tag: str, modified_s: int) -> bool:
    """Say whether the caller has the file as it is (RFC 9110, section 13.1)."""
    known = asked.getlist("If-None-Match")
    if known:
        tags = ",".join(known)
        return tags.strip() == "*" or tag in _ENTITY_TAG.findall(tags)
    try:
        since = parsedate_to_datetime(asked.get("If-Modified-Since", ""))
        return modified_s <= since.replace(tzinfo=since.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError):  # not a date, which is as if there was none
        return False


def _part(asked: str, size: int) -> range | None:
    """Return the part of a file that a `Range` means; None for any but a single valid range."""
    found = _RANGE.fullmatch(asked)
    if found is None or found[1] == found[2] == "":
        return None
    if found[1]:
        start, stop = int(found[1]), min(int(found[2] or size) + 1, size)
        if found[2] and int(found[2]) < start:
            return None
    else:
        start, stop = max(0, size - int(found[2])), size
    if start >= stop:
        message = f"The file has {size} bytes."
        headers = {"Content-Range": f"bytes */{size}"}
        raise Refusal(416, "RangeNotSatisfiable", message, target="Range", headers=headers)
    return range(start, stop)


def _disposition(name: str) -> str:
    """Return the header that names a download (RFC 6266): for old clients in plain ASCII, too."""
    plain = _NOT_PLAIN.sub("_", name)
    exact = "" if plain == name else f"; filename*=UTF-8''{quote(name, safe='', errors='replace')}"
    return f'attachment; filename="{plain}"{exact}'


class SentFile(StreamingResponse):
    """Sends a part of an open file, and always closes the file.

    What is added to the file meanwhile is not sent. Where the file becomes shorter, the connection
    ends without the rest, so that the caller notices.
    """

    media_type = "application/octet-stream"

    def __init__(self, file: IO[bytes], part: range, headers: dict[str, str], **more: Any) -> None:
        super().__init__(_chunks(file, part), headers=headers, **more)
        self._file = file
        self._left = len(part)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._file.close()

    async def stream_response(self, send: Send) -> None:
        """Send the head and the content, and the end only where the content is whole."""
        headers = self.raw_headers
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        async for chunk in self.body_iterator:
            self._left -= len(chunk)
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        if self._left:
            LOG.error("a file became shorter while it was sent, and its download was ended")
        else:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _chunks(file: IO[bytes], part: range) -> AsyncIterator[bytes]:
    """Yield a part of a file; less where the file has become shorter or cannot be read."""
    at = part.start
    while at < part.stop:
        length = min(CHUNK_BYTES, part.stop - at)
        try:
            chunk = await asyncio.to_thread(os.pread, file.fileno(), length, at)
        except OSError:
            return
        if not chunk:
            return
        at += len(chunk)
        yield chunk
