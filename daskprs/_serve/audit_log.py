"""The audit log: who started, canceled and resumed jobs, and who read what of them."""

from __future__ import annotations

import errno
import json
import os
import time
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from daskprs._serve.rate_limits import CallerRate
from daskprs._system.regular_files import opened
from daskprs._system.standard_streams import to_stderr
from daskprs.errors import JobFolderError, OptionError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from starlette.types import Message, Scope

MOST_BYTES = 10 << 20
KEPT = 9
"""Older files that are kept, as ``audit.jsonl.1`` and so on."""
MOST_CHARS = 500
STRANGERS_LOGGED_PER_S = 1.0
LOOK, READ = "look", "read"
UNKNOWN, TOO_MANY = 401, 429
REFUSALS = {UNKNOWN, 403, TOO_MANY}
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW


class AuditLog:
    """A file with a line of JSON for each request that changes or reads something.

    The file is opened for each line, so that an operator may move it away. A line that cannot be
    written does not fail the request; the first of them is reported on stderr.
    """

    def __init__(
        self,
        path: Path,
        most_bytes: int = MOST_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._is_failing = False
        self._strangers = CallerRate(STRANGERS_LOGGED_PER_S, clock)
        try:
            os.close(self._opened())
        except (OSError, JobFolderError) as error:
            msg = f"--audit-log {path}: this file cannot be written: {error}"
            raise OptionError(msg) from error

    def answered(self, scope: Scope, message: Message) -> None:
        """Record a request, by the first message of its answer.

        Left out are requests for the state of jobs, which come every second, and refusals that
        could push the others out of the log: those by a rate limit after the first one, and those
        of strangers above `STRANGERS_LOGGED_PER_S`.
        """
        status, state, path = message["status"], scope.get("state", {}), scope["path"]
        action, job = _action_on(scope["method"], path)
        is_repeated = status == TOO_MANY and state.get("is_repeated", False)
        is_left_out = is_repeated or (action == LOOK and status not in REFUSALS)
        if is_left_out or (status == UNKNOWN and not self._strangers.is_admitted()):
            return
        made = dict(message.get("headers", ())).get(b"location", b"").decode("latin-1")
        self._record(
            token=state.get("caller"),
            address=(scope.get("client") or (None,))[0],
            action=action,
            job=job or made.rpartition("/")[2] or None,
            path=path,
            status=status,
        )

    def _record(self, **values: str | int | None) -> None:
        short = {
            key: value[:MOST_CHARS] if isinstance(value, str) else value
            for key, value in values.items()
        }
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        try:
            self._append(json.dumps({"time": at, **short}).encode() + b"\n")
        except (OSError, JobFolderError) as error:
            if not self._is_failing:
                to_stderr(f"daskprs: the audit log {self._path} misses lines: {error}")
            self._is_failing = True
        else:
            self._is_failing = False

    def _append(self, line: bytes) -> None:
        with suppress(FileNotFoundError):
            if self._path.stat().st_size + len(line) > self._most_bytes:
                self._rotate()
        fd = self._opened()
        try:
            size = os.fstat(fd).st_size
            if os.write(fd, line) < len(line):  # the disk is full: leave no half line
                os.ftruncate(fd, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(fd)

    def _opened(self) -> int:
        return opened(self._path, _FLAGS, 0o600)

    def _rotate(self) -> None:
        name = self._path.name
        files = [self._path, *(self._path.with_name(f"{name}.{n}") for n in range(1, KEPT + 1))]
        for newer, older in reversed([*pairwise(files)]):
            if newer.exists():
                newer.replace(older)


def _action_on(method: str, path: str) -> tuple[str, str]:
    """Return the action of a request, and the job in its path."""
    _, _, job, what = [*path.split("/", 3), "", "", ""][:4]
    if method in {"GET", "HEAD", "OPTIONS"}:
        return READ if what else LOOK, job
    return what or ("start" if method == "POST" else method.lower()), job
