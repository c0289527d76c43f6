"""A service in a process of its own, and a client of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import httpx

from tests.support.polling import poll_for

if TYPE_CHECKING:
    from types import TracebackType

PROGRAMS = Path(__file__).parents[1] / "serve" / "programs"
TOKEN = "a-token-that-counts-here"  # noqa: S105 - of a service that lives for a test
OLD_TOKEN = "a-token-that-has-expired"  # noqa: S105 - the same
FOREIGN_TOKEN = "a-token-for-another-service"  # noqa: S105 - the same
TOKENS = f"""tokens:
  - name: ours
    token: {TOKEN}
    audience: https://ml.azure.com
    expires: 2999-01-01T00:00:00Z
  - name: old
    token: {OLD_TOKEN}
    expires: 2020-01-01T00:00:00Z
  - name: foreign
    token: {FOREIGN_TOKEN}
    audience: https://management.azure.com
"""
LIVE = {"Queued", "Running", "CancelRequested"}


class LightService:
    """A service of light jobs below a folder; see `programs/light_service.py`."""

    def __init__(
        self,
        home: Path,
        names: str = "first,second",
        default: str = "first",
        running: int = 2,
        queued: int = 1000,
        **more: Any,
    ) -> None:
        self.home = home
        for folder in ("data", "results"):
            home.joinpath(folder).mkdir(exist_ok=True, parents=True)
        tokens = home / "tokens.yml"
        tokens.touch(mode=0o600)
        tokens.write_text(TOKENS)
        self._words = [str(home), names, default, str(running), str(queued), json.dumps(more)]

    def __enter__(self) -> Self:
        """Start it, and wait until it listens."""
        paths = [str(PROGRAMS), os.environ.get("PYTHONPATH", "")]
        with self.home.joinpath("service.txt").open("ab") as log:
            self.process = subprocess.Popen(
                self.program([sys.executable, str(PROGRAMS / "light_service.py"), *self._words]),
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
                text=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert " is served at " in line, self.home.joinpath("service.txt").read_text()
        self.url = line.split(" is served at ")[1].strip().removesuffix("/jobs")
        self.client = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=60,
            limits=httpx.Limits(max_keepalive_connections=0),  # nothing is left of a test
        )
        return self

    def program(self, words: list[str]) -> list[str]:
        """Return the words that start the service."""
        return words

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it."""
        self.client.close()
        self.process.terminate()
        self.process.communicate(timeout=60)

    def killed(self) -> None:
        """Have it die without a word."""
        self.process.kill()
        self.process.wait()

    def data(self, name: str, *lines: str) -> str:
        """Write an input, and return its place."""
        path = self.home / "data" / name
        path.write_text("\n".join(lines))
        return str(path)

    def invoke(self, uri: str, kind: str = "UriFile", **more: Any) -> httpx.Response:
        """Invoke a deployment with an input."""
        return self.client.post("/jobs", json=body(uri, kind), **more)

    def job(self, name: str) -> dict[str, Any]:
        """Return how a job is."""
        answer = self.client.get(f"/jobs/{name}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def status(self, name: str) -> str:
        """Return how a job is, in a word."""
        return str(self.job(name)["properties"]["status"])

    def ended(self, name: str) -> str:
        """Wait for a job's end, and return its status."""
        assert poll_for(lambda: self.status(name) not in LIVE, 120), self.job(name)
        return self.status(name)


def body(uri: str, kind: str = "UriFile", **more: Any) -> dict[str, Any]:
    """Return the body of an invocation."""
    return {"properties": {"InputData": {"it": {"JobInputType": kind, "Uri": uri}}, **more}}
