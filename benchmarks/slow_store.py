"""A store of objects on loopback, as far away as one likes: each request waits before its answer.

It speaks as much of S3's protocol as reading takes: to get an object, a part of it or its size, and
to list names.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections import Counter
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterator

RANGE = re.compile(r"bytes=(\d+)-(\d*)")
WHEN = "2026-01-01T00:00:00.000Z"
HTTP_DATE = "Thu, 01 Jan 2026 00:00:00 GMT"


class SlowStore:
    """Objects by their paths, such as ``bucket/a.bin``, and what was asked of the store."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.delay_s = 0.0
        """Seconds that each request waits."""
        self.together: dict[str, int] = {}
        """By a pattern of method and path: how many such requests wait for one another, for a few
        seconds at most."""
        self.asked: list[str] = []
        """Method and path of each request, with the listed prefix."""
        self.peaks = Counter[str]()
        """The largest number of requests at the same time, by pattern."""
        self.largest = Counter[str]()
        """The bytes of the largest part that was sent of each object, by its path."""
        self.endpoint = ""
        self._here = Counter[str]()
        self._changed = threading.Condition()

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to use the store as S3."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "anyone",
            "AWS_SECRET_ACCESS_KEY": "anyone",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @contextmanager
    def request(self, what: str) -> Iterator[None]:
        """Count a request while the block answers it."""
        pattern = next((one for one in self.together if re.match(one, what)), "")
        with self._changed:
            self.asked.append(what)
            self._here[pattern] += 1
            self.peaks[pattern] = max(self.peaks[pattern], self._here[pattern])
            self._changed.notify_all()
            wanted = self.together.get(pattern, 1)
            self._changed.wait_for(lambda: self.peaks[pattern] >= wanted, timeout=5)
        time.sleep(self.delay_s)
        try:
            yield
        finally:
            with self._changed:
                self._here[pattern] -= 1

    def listed(self, bucket: str, prefix: str, delimiter: str) -> str:
        """Return the listing of a bucket, below a prefix."""
        contents, folders = [], dict[str, None]()
        for path, body in sorted(self.objects.items()):
            name = path.removeprefix(f"{bucket}/")
            if name == path or not name.startswith(prefix):
                continue
            below, slash, _ = name[len(prefix) :].partition(delimiter or "\0")
            if slash:
                folders[prefix + below + slash] = None
            else:
                contents.append(
                    f"<Contents><Key>{escape(name)}</Key><LastModified>{WHEN}</LastModified>"
                    f"<ETag>{etag(body)}</ETag><Size>{len(body)}</Size></Contents>"
                )
        common = [
            f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in folders
        ]
        return (
            '<?xml version="1.0"?><ListBucketResult '
            'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><IsTruncated>false</IsTruncated>'
            f"{''.join(contents + common)}</ListBucketResult>"
        )


def etag(body: bytes) -> str:
    """Return the version of an object."""
    return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'


@contextmanager
def slow_store() -> Iterator[SlowStore]:
    """Yield a store of one's own, in a thread of this process."""
    store = SlowStore()

    class Handler(_Handler):
        of = store

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        store.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield store
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    of: SlowStore
    protocol_version = "HTTP/1.1"
    timeout = 5
    """Seconds after which a connection without requests ends, and its thread."""
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        path, asked = unquote(url.path).strip("/"), parse_qs(url.query)
        prefix = asked.get("prefix", [""])[0]
        with self.of.request(f"{self.command} {path} {prefix}".strip()):
            if "list-type" in asked:
                text = self.of.listed(path, prefix, asked.get("delimiter", [""])[0])
                self._answer(HTTPStatus.OK, text.encode(), {"Content-Type": "application/xml"})
            elif path in self.of.objects:
                self._send_object(path, self.of.objects[path])
            else:
                self._answer(HTTPStatus.NOT_FOUND, b"")

    do_HEAD = do_GET  # noqa: N815 - the same

    def log_message(self, *_: object) -> None:
        """Write no log."""

    def _send_object(self, path: str, body: bytes) -> None:
        headers = {"ETag": etag(body), "Last-Modified": HTTP_DATE, "Accept-Ranges": "bytes"}
        part = RANGE.fullmatch(self.headers.get("Range", ""))
        if part is None:
            self._answer(HTTPStatus.OK, body, headers)
            return
        start = int(part[1])
        stop = min(int(part[2] or len(body) - 1) + 1, len(body))
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(body)}"
        self._answer(HTTPStatus.PARTIAL_CONTENT, body[start:stop], headers)
        self.of.largest[path] = max(self.of.largest[path], stop - start)

    def _answer(
        self, status: HTTPStatus, body: bytes, headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
