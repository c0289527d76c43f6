"""The parts of the logs of its process that each attempt writes."""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import termios
import time
from typing import TYPE_CHECKING, Any

from daskprs._core.outcomes import PRINTED_SOMEWHERE, UNKNOWN, Printed

if TYPE_CHECKING:
    from daskprs._agent.protocol.messages import ProcessSpec
    from daskprs._agent.protocol.shared_page import SharedPage

STDOUT, STDERR = OWN = 1, 2
Streams = tuple[int, int]
"""The descriptors of the files that get stdout and stderr."""
PATIENCE_S = 0.2
"""Seconds to wait until a masked log has what was printed; a child may print without end."""
LOOK_EVERY_S = 50e-6


class PrintMarks:
    """Marks the ends of stdout and stderr, attempt by attempt, in a microsecond.

    The page has the last marks: they are the beginning of what a process that was killed has
    written in its last attempt. Where logs are masked, stdout and stderr are pipes, and the worker
    is waited for. While a script has put other files in the place of the logs, the marks are
    unknown.
    """

    def __init__(self, page: SharedPage, process: ProcessSpec, streams: Streams = OWN) -> None:
        self._page = page
        self._fds = streams
        self._masked = (
            (process.stdout, process.stderr) if process.masked and streams is OWN else None
        )
        self._streams: tuple[Any, ...] = ()
        """The streams after the import of the script; `run` may replace them."""
        self._files = self._files_now()
        self._marks: tuple[int, int] | None = (0, 0)
        """None: unknown."""

    def move(self) -> Printed | None:
        """Move the marks to the ends, and return what lies between; None if nothing does."""
        before, self._streams = self._marks, self._streams or (sys.stdout, sys.stderr)
        try:
            for stream in self._streams:
                stream.flush()
            self._marks = self._ends() if self._files_now() == self._files else None
        except Exception:  # noqa: BLE001 - a script may put anything there
            self._marks = None
        if self._marks is None:
            self._page.mark_printed(UNKNOWN, UNKNOWN)
            return PRINTED_SOMEWHERE
        if self._marks == before:
            return None
        self._page.mark_printed(*self._marks)
        if before is None:
            return PRINTED_SOMEWHERE
        return Printed(*zip(before, self._marks, strict=True))

    def _ends(self) -> tuple[int, int]:
        if self._masked is not None:
            stdout, stderr = self._masked
            return self._masked_end(STDOUT, stdout), self._masked_end(STDERR, stderr)
        stdout_fd, stderr_fd = self._fds
        return os.lseek(stdout_fd, 0, os.SEEK_END), os.lseek(stderr_fd, 0, os.SEEK_END)

    def _files_now(self) -> tuple[tuple[int, int], ...]:
        """Return which files stdout and stderr are."""
        return tuple((at.st_dev, at.st_ino) for at in map(os.fstat, self._fds))

    def _masked_end(self, fd: int, log: str) -> int:
        """Return the length of a masked log with what it holds back, once nothing is on the way."""
        until = time.monotonic() + PATIENCE_S
        while _unread_bytes(fd) or self._page.is_masking(fd - STDOUT):
            if time.monotonic() > until:
                break
            time.sleep(LOOK_EVERY_S)
        size = os.stat(log).st_size  # noqa: PTH116 - after each attempt
        return size + self._page.held_bytes(fd - STDOUT)


def _unread_bytes(fd: int) -> int:
    count: int = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))[0]
    return count
