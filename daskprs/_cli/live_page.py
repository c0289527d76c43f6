"""The report of a job as a page on this machine that keeps up with the job."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from daskprs._job.report import report_of
from daskprs._page.html_page import page_of
from daskprs.errors import DaskprsError

if TYPE_CHECKING:
    from daskprs._folders.job_folder import JobFolder

LOOPBACK = "127.0.0.1"
EVERY_S = 2.0
"""Seconds for which a page is kept."""
LONGEST_S = 60.0
"""Seconds after which a browser that says or takes nothing is given up."""
PAUSE = 10
"""Smallest ratio of this time to that of making a page: a job may have a million attempts."""
SCRIPT = """
setInterval(async () => {
  let text;
  try { text = await (await fetch(location.href)).text(); } catch { return; }
  const now = new DOMParser().parseFromString(text, "text/html").getElementById("report");
  const shown = document.getElementById("report");
  if (!now || now.innerHTML === shown.innerHTML) return;
  const open = [...shown.querySelectorAll("details")].map(one => one.open);
  now.querySelectorAll("details").forEach((one, at) => { one.open = open[at]; });
  if (document.activeElement === document.body) shown.replaceWith(now);
}, 3000);
"""
"""Replaces the report by that of now; not while the keyboard is within it."""
DIGEST = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()


class LivePage:
    """Serves the report of a job on loopback, to whoever knows the token in its address."""

    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder
        self._token = secrets.token_urlsafe(24)
        self._making = threading.Lock()
        self._page = b""
        self._keep_until_s = 0.0
        self.page()  # refuses a folder in which no job has begun
        self._server = ThreadingHTTPServer((LOOPBACK, 0), self._handler())
        self._server.daemon_threads = True

    @property
    def address(self) -> str:
        """The address of the page."""
        return f"http://{LOOPBACK}:{self._server.server_address[1]}/{self._token}/"

    def serve(self) -> None:
        """Serve until `stop`, or an interrupt."""
        self._server.serve_forever()

    def stop(self) -> None:
        """End `serve`, which another thread has called."""
        self._server.shutdown()

    def close(self) -> None:
        """Close the socket."""
        self._server.server_close()

    def page(self) -> bytes:
        """Return the page of now, or that of a moment ago."""
        with self._making:
            begun_s = time.monotonic()
            if begun_s >= self._keep_until_s:
                script = f"'sha256-{DIGEST}'; connect-src 'self'", f"<script>{SCRIPT}</script>"
                self._page = page_of(report_of(self._folder), script).encode(errors="replace")
                now_s = time.monotonic()
                self._keep_until_s = now_s + max(EVERY_S, PAUSE * (now_s - begun_s))
            return self._page

    def is_known(self, path: str) -> bool:
        """Return whether a request has the token."""
        return hmac.compare_digest(path.strip("/").encode(), self._token.encode())

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        page = self

        class Handler(BaseHTTPRequestHandler):
            """Answers with the page, or with an error."""

            timeout = LONGEST_S

            def handle(self) -> None:
                """Answer a browser, which may go away at any time."""
                with suppress(ConnectionError):
                    super().handle()

            def do_GET(self) -> None:
                if not page.is_known(self.path):
                    self.send_error(HTTPStatus.NOT_FOUND)
                    return
                try:
                    body = page.page()
                except (DaskprsError, OSError) as error:  # the folder is gone, or goes
                    self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, explain=str(error))
                    return
                self.send_response(HTTPStatus.OK)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Cache-Control", "no-store")
                self.send_header("Referrer-Policy", "no-referrer")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Log nothing: the terminal is the user's."""

        return Handler
