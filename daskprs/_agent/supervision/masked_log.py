"""The log of an agent with secrets: the agent writes into a pipe, and a thread masks and keeps it.

The pipe is read to its end, also where the disk takes no more: an agent never waits for its log.
"""

from __future__ import annotations

import errno
import os
import select
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from daskprs._system.masks import MaskedStream

if TYPE_CHECKING:
    from daskprs._agent.protocol.shared_page import SharedPage
    from daskprs._system.masks import Mask

PIECE_BYTES = 1 << 16
REST_S = 5.0
"""Seconds for the rest of a log, once its agent and all descendants have ended."""


class MaskedLog:
    """Appends to a log what comes out of a pipe, without the secrets.

    The `page` of an agent says when something was read and is not in the log yet, so that the
    agent knows where the output of an attempt ends. The log closes the page. `stream` is the number
    of the log.
    """

    def __init__(
        self, path: str, mask: Mask, page: SharedPage | None = None, stream: int = 0
    ) -> None:
        self._page = page
        self._number = stream
        self._stream = MaskedStream(mask)
        self._pipe, self.writer = os.pipe()
        """`writer` is for the agent, and is to be closed here once the agent has it."""
        try:
            self._log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError:
            os.close(self._pipe)
            os.close(self.writer)
            raise
        self._thread = threading.Thread(target=self._copy, name="daskprs-log", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # no more threads
            for fd in (self._log, self._pipe, self.writer):
                os.close(fd)
            raise OSError(errno.EAGAIN, str(error)) from error

    def wait(self) -> None:
        """Wait until all is written that was in the pipe when its last writer ended."""
        self._thread.join(REST_S)

    def _copy(self) -> None:
        ready = select.poll()
        ready.register(self._pipe, select.POLLIN)
        try:
            while ready.poll():
                self._say(busy=True)  # before the pipe is empty
                piece = os.read(self._pipe, PIECE_BYTES)
                if not piece:
                    break
                self._write(self._stream.next(piece))
                self._say(busy=False)
            self._write(self._stream.last())
        finally:
            os.close(self._pipe)
            os.close(self._log)
            if self._page is not None:
                self._page.close()

    def _say(self, *, busy: bool) -> None:
        if self._page is not None:
            held_bytes = self._stream.held_bytes
            self._page.masks(self._number, busy=busy, held_bytes=held_bytes)

    def _write(self, masked: bytes) -> None:
        with suppress(OSError):  # a full disk
            while masked:
                masked = masked[os.write(self._log, masked) :]
