"""A store of objects that fails when it is told to: it stands before another one, in a process.

Requests are counted. At the n-th, the client is killed, or it gets an error, or no answer.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
import urllib.request
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

HOW = ("kill before", "kill after", "500", "503", "cut before", "cut after", "down")
"""SIGKILL before the store has the request, or after; an error; a connection that is cut before
or after; errors from then on."""
CONTROL = "/_strike"
CODES = {"500": "InternalError", "503": "SlowDown", "down": "InternalError"}
HOPS = {"connection", "transfer-encoding", "keep-alive"}


class Strike(NamedTuple):
    """What happens, and when."""

    nth: int = 0
    how: str = ""
    pid: int = 0
    """The process that is killed."""


class FailingStore:
    """The store, as the tests see it."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"

    def strike(self, strike: Strike) -> None:
        """Begin to count, and strike once."""
        self._ask(json.dumps(strike).encode())

    def seen(self) -> list[str]:
        """Return the requests since then."""
        seen: list[str] = json.loads(self._ask())
        return seen

    def _ask(self, body: bytes | None = None) -> bytes:
        with urllib.request.urlopen(self.endpoint + CONTROL, body, timeout=30) as answer:  # noqa: S310 - our own
            found: bytes = answer.read()
        return found


class _Server(ThreadingHTTPServer):
    """Knows the other store, and what is to happen."""

    daemon_threads = True

    def __init__(self, other: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.other = other.removeprefix("http://")
        self.lock = threading.Lock()
        self.strike = Strike()
        self.seen: list[str] = []

    def handle_error(self, *_: Any) -> None:
        """Say nothing of clients that were killed."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        """Pass a request on, or strike."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == CONTROL:
            self._control(body)
            return
        with self.server.lock:
            self.server.seen.append(f"{self.command} {self.path}")
            number, strike = len(self.server.seen), self.server.strike
        due = number == strike.nth or (strike.how == "down" and number > strike.nth)
        how = strike.how if due else ""
        if how in CODES:
            self._answer(int(how.replace("down", "500")), _error(CODES[how]))
        elif how == "cut before":
            self._cut()
        else:
            if how == "kill before":
                os.kill(strike.pid, signal.SIGKILL)
            self._pass_on(body, how, strike.pid)

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815 - http.server names them

    def _control(self, body: bytes) -> None:
        with self.server.lock:
            if body:
                self.server.strike, self.server.seen = Strike(*json.loads(body)), []
            self._answer(200, json.dumps(self.server.seen).encode())

    def _pass_on(self, body: bytes, how: str, pid: int) -> None:
        if how == "kill before":
            self._cut()
            return
        other = http.client.HTTPConnection(self.server.other, timeout=30)
        try:
            headers = {name: value for name, value in self.headers.items() if name != "Expect"}
            other.request(self.command, self.path, body or None, headers)
            answer = other.getresponse()
            content = answer.read()
        finally:
            other.close()
        if how == "kill after":
            os.kill(pid, signal.SIGKILL)
        if how:
            self._cut()
            return
        found = [(name, value) for name, value in answer.getheaders() if name.lower() not in HOPS]
        self._answer(answer.status, content, found)

    def _cut(self) -> None:
        self.close_connection = True

    def _answer(
        self, status: int, content: bytes, headers: list[tuple[str, str]] | None = None
    ) -> None:
        self.send_response_only(status)
        for name, value in headers or [("Content-Type", "application/xml")]:
            if name.lower() != "content-length" or self.command == "HEAD":
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>struck</Message></Error>".encode()


@contextmanager
def failing_store(other: str) -> Iterator[FailingStore]:
    """Yield a store before another one, which a fork of this process serves."""
    server = _Server(other)
    pid = os.fork()
    if pid == 0:
        with suppress(KeyboardInterrupt):
            server.serve_forever()
        os._exit(0)
    port = server.server_address[1]
    server.server_close()
    try:
        yield FailingStore(port)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
