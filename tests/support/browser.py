"""A headless Chromium, driven by the DevTools protocol over a pair of pipes.

``python -m tests.support.browser FOLDER`` looks at each page of ``site/`` as its readers see it,
saves screenshots into FOLDER, and prints what is wrong.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import http.server
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

HOME = Path(__file__).parents[2]
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
LONGEST_S = 60.0
COLOURS_S = 2.0
"""Seconds until a page has the colours of its window, which a script sets after it is loaded."""
FLAGS = [
    "--headless=new",
    "--no-sandbox",  # the pages are ours; a sandbox needs rights that containers do not give
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--remote-debugging-pipe",
]
HIDDEN = """
(() => {
  const found = [], seen = ".md-content :is(table, pre, img, p, li, h1, h2, h3)";
  const right = one => one.getBoundingClientRect().right;
  const overflow = one => getComputedStyle(one).overflowX;
  const scrolls = one => ["auto", "scroll"].includes(overflow(one));
  const cuts = one => ["hidden", "clip"].includes(overflow(one));
  const page = document.scrollingElement;
  if (page.scrollWidth > innerWidth + 1) found.push("the page scrolls sideways");
  for (const one of document.querySelectorAll(seen)) {
    let isCut = right(one) > innerWidth + 1 || cuts(one) && one.scrollWidth > one.clientWidth + 1;
    let box = one.parentElement;
    while (box !== document.body && !scrolls(box)) {
      isCut ||= cuts(box) && right(one) > right(box) + 1;
      box = box.parentElement;
    }
    const words = (one.textContent || one.src || "").trim().slice(0, 50);
    if (isCut && box === document.body) found.push(`cut off: ${one.tagName} ${words}`);
  }
  return found;
})()
"""
"""What a reader cannot get to see: beyond the window, and in no box that scrolls."""


class View(NamedTuple):
    """A window that a page is looked at in."""

    width: int
    height: int
    scheme: str


VIEWS = [View(w, h, scheme) for w, h in [(1280, 900), (390, 844)] for scheme in ("light", "dark")]


class Browser:
    """A Chromium with one page."""

    def __init__(self) -> None:
        assert CHROMIUM is not None
        self._folder = tempfile.TemporaryDirectory()
        theirs, self._write = os.pipe()
        self._read, answers = os.pipe()
        # The protocol asks for the descriptors 3 and 4.
        words = ["bash", "-c", f'exec "$@" 3<&{theirs} 4>&{answers}', "bash", CHROMIUM, *FLAGS]
        self._program = subprocess.Popen(
            [*words, f"--user-data-dir={self._folder.name}", "about:blank"],
            pass_fds=(theirs, answers),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs)
        os.close(answers)
        self._number = 0
        self._said = b""
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        # Without the colours that a page before has kept.
        self.call(
            "Page.addScriptToEvaluateOnNewDocument",
            source="origin === 'null' || localStorage.clear()",
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._program.pid, signal.SIGKILL)
        self._program.wait()
        os.close(self._write)
        os.close(self._read)
        self._folder.cleanup()

    def call(self, method: str, **values: Any) -> dict[str, Any]:
        """Call a method of the protocol, and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": values}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, (method, answer["error"])
        result: dict[str, Any] = answer["result"]
        return result

    def open(self, address: str, view: View) -> None:
        """Open a page in a window, and wait until it is loaded."""
        self.call("Page.navigate", url="about:blank")
        self.events.clear()
        mobile = view.width < 500
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=view.width,
            height=view.height,
            deviceScaleFactor=1,
            mobile=mobile,
        )
        feature = {"name": "prefers-color-scheme", "value": view.scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])
        self.call("Page.navigate", url=address)
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")

    def wait_for(self, expression: str) -> None:
        """Wait until an expression of JavaScript is true."""
        assert self.becomes_true(expression), expression

    def becomes_true(self, expression: str, within_s: float = LONGEST_S) -> bool:
        """Wait for an expression of JavaScript, and say whether it was true in time."""
        until = time.monotonic() + within_s
        while not (is_true := bool(self.value(expression))) and time.monotonic() < until:
            time.sleep(0.05)
        return is_true

    def value(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return answer["result"].get("value")

    def picture(self) -> bytes:
        """Return what is in the window, as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot")["data"])

    def complaints(self, own: str) -> list[str]:
        """Return the errors of the console, and what was fetched from elsewhere."""
        found: list[str] = []
        for event in self.events:
            match event:
                case {"method": "Runtime.exceptionThrown", "params": values}:
                    found.append(f"an exception: {values['exceptionDetails'].get('text')}")
                case {"method": "Runtime.consoleAPICalled", "params": {"type": "error", "args": a}}:
                    found.append(f"on the console: {[one.get('value') for one in a]}")
                case {"method": "Log.entryAdded", "params": {"entry": {"level": "error"} as entry}}:
                    found.append(f"on the console: {entry['text']} {entry.get('url', '')}")
                case {"method": "Network.requestWillBeSent", "params": {"request": {"url": url}}}:
                    if not url.startswith((own, "data:", "blob:")):
                        found.append(f"fetched from elsewhere: {url}")
        return found

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._said:
            assert select.select([self._read], [], [], LONGEST_S)[0], "the browser says nothing"
            read = os.read(self._read, 1 << 20)
            assert read, "the browser has ended"
            self._said += read
        message, _, self._said = self._said.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer


@contextlib.contextmanager
def served(site: Path) -> Iterator[str]:
    """Serve a folder on this machine alone; give its address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = False
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def wrong_with(
    browser: Browser, address: str, page: str, pictures: Path | None = None
) -> list[str]:
    """Return what is wrong with a page in each window; save what is seen of it."""
    found: list[str] = []
    for view in VIEWS:
        browser.open(address + page, view)
        scheme = "slate" if view.scheme == "dark" else "default"
        has_colours = browser.becomes_true(
            f"document.body.dataset.mdColorScheme === '{scheme}'", COLOURS_S
        )
        wrong = [*browser.value(HIDDEN), *browser.complaints(address)]
        wrong += [] if has_colours else ["the other colours are shown"]
        found += [f"{page} at {view.width} px, {view.scheme}: {one}" for one in wrong]
        if pictures is not None:
            name = page.replace("/", "-").removesuffix(".html")
            file = pictures / f"{name}-{view.width}-{view.scheme}.png"
            file.write_bytes(browser.picture())
    return found


def main(pictures: Path) -> int:
    """Look at all pages of the site that `make docs` has built; return how many are wrong."""
    site = HOME / "site"
    pictures.mkdir(parents=True, exist_ok=True)
    wrong = 0
    with served(site) as address, Browser() as browser:
        for path in sorted(site.rglob("*.html")):
            found = wrong_with(browser, address, path.relative_to(site).as_posix(), pictures)
            wrong += bool(found)
            for line in found:
                print(line)
    return wrong


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])) > 0)
