"""The parts of the logs of its process that each attempt writes."""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import termios
import time
from typing import TYPE_CHECKING

from daskprs.core.outcomes import PRINTED_SOMEWHERE, UNKNOWN, Printed

if TYPE_CHECKING:
    from daskprs.agent.protocol.messages import ProcessSpec
    from daskprs.agent.protocol.shared_page import SharedPage

STDOUT, STDERR = 1, 2
PATIENCE_S = 0.2
"""Seconds to wait until a masked log has what was printed; a child may print without end."""
LOOK_EVERY_S = 50e-6


class PrintMarks:
    """Marks the ends of stdout and stderr, attempt by attempt, in a microsecond.

    The page has the last marks: they are the beginning of what a process that was killed has
    written in its last attempt. Where logs are masked, stdout and stderr are pipes, and the worker
    is waited for.
    """

    def __init__(self, page: SharedPage, process: ProcessSpec) -> None:
        self._page = page
        self._masked = (process.stdout, process.stderr) if process.masked else None
        self._streams = sys.stdout, sys.stderr  # a script may put others in their place
        self._marks = (0, 0)

    def move(self) -> Printed | None:
        """Move the marks to the ends, and return what lies between; None if nothing does.

        The ends of a pipe, and of what a script has put in the place of its logs, are unknown.
        """
        before = self._marks
        try:
            for stream in self._streams:
                stream.flush()
            self._marks = self._ends()
        except Exception:  # noqa: BLE001 - a script may put anything there
            self._page.mark_printed(UNKNOWN, UNKNOWN)
            return PRINTED_SOMEWHERE
        if self._marks == before:
            return None
        self._page.mark_printed(*self._marks)
        return Printed(*zip(before, self._marks, strict=True))

    def _ends(self) -> tuple[int, int]:
        if self._masked is not None:
            stdout, stderr = self._masked
            return self._masked_end(STDOUT, stdout), self._masked_end(STDERR, stderr)
        return os.lseek(STDOUT, 0, os.SEEK_END), os.lseek(STDERR, 0, os.SEEK_END)

    def _masked_end(self, fd: int, log: str) -> int:
        """Return the length of a masked log, once nothing for it is on the way."""
        until = time.monotonic() + PATIENCE_S
        while _unread_bytes(fd) or self._page.is_masking(fd - STDOUT):
            if time.monotonic() > until:
                break
            time.sleep(LOOK_EVERY_S)
        return os.stat(log).st_size  # noqa: PTH116 - after each attempt


def _unread_bytes(fd: int) -> int:
    count: int = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))[0]
    return count
