"""Logs of nodes that do not see the job folder, copied into it about once a second."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from daskprs._cluster.remote.node_service import Unreachable
from daskprs._system.log_cap import cut, punch

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from daskprs._agent.node.site import LogPiece
    from daskprs._cluster.remote.node_service import NodeCalls

ROUNDS = 8
"""Requests in a row to a node with more log bytes than fit into one answer."""
LAST_S = 60.0
"""Seconds for fetching the rest of a node's logs at the end."""
CALL_S = 15.0


class FarLogs:
    """Copies the logs of a node's agents: the same bytes at the same places.

    A node that is cut off is asked again while it exists. A lost answer neither loses nor doubles
    any bytes.
    """

    def __init__(self, call: NodeCalls, logs: Path) -> None:
        self._call = call
        self._logs = logs
        self._known: dict[str, dict[str, int]] = {}
        """For each folder of a node, the copied bytes of each log."""
        self._writing = threading.Lock()

    def write(self, folder: str, pieces: Iterable[LogPiece]) -> None:
        """Write pieces at their places; bytes written twice are the same."""
        with self._writing:
            known = self._known.setdefault(folder, {})
            for log, offset, body in pieces:
                path = self._logs / log
                if path.is_relative_to(self._logs) and ".." not in path.parts:
                    _write(path, offset, body)
                    known[log] = max(known.get(log, 0), offset + len(body))

    def fetch(self, folder: str, worker: str) -> bool:
        """Fetch new log bytes of a folder from a worker once; return whether there were any."""
        known = dict(self._known.get(folder, {}))
        pieces = self._call(worker, "folder", "news", known, within_s=CALL_S)
        self.write(folder, pieces)
        return bool(pieces)

    def fetch_news(self, folder: str, worker: str) -> None:
        """Copy new log bytes, in `ROUNDS` answers at most; the rest waits for the next call."""
        with suppress(Unreachable, OSError):
            for _ in range(ROUNDS):
                if not self.fetch(folder, worker):
                    return

    def fetch_rest(self, folder: str, worker: str) -> None:
        """Copy the remaining log bytes, once the agents write no more."""
        until = time.monotonic() + LAST_S
        with suppress(Unreachable, OSError):
            while time.monotonic() < until and self.fetch(folder, worker):
                pass

    def close(self) -> None:
        """Shorten copied logs that are too long, as it is done where they are written."""
        for known in self._known.values():
            for log in known:
                cut(str(self._logs / log))


def _write(path: Path, offset: int, body: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        while body:
            written = os.pwrite(fd, body, offset)
            body, offset = body[written:], offset + written
    finally:
        os.close(fd)
    punch(str(path))
