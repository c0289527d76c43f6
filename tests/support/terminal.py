"""Programs in a pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING, Self

from tests.support.terminal_screen import Screen

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

LONGEST_S = 60.0
CTRL_C = b"\x03"
TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)
"""Ctrl-C goes to the session whose terminal it is."""


class Terminal:
    """A terminal with a program in it, which has it for its stdin, stdout and stderr.

    `said` is all that came out of it, `screen` what is to be seen of that.
    """

    def __init__(self, command: list[str], columns: int, **environment: str) -> None:
        self.screen = Screen(columns)
        self.said = ""
        self._own, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.program = subprocess.Popen(
            [sys.executable, "-c", TAKE_TERMINAL, *command],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "", **environment},
            start_new_session=True,
        )
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.program.kill()
        self.program.wait()
        os.close(self._own)

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._own, keys)

    def read_until(self, condition: Callable[[], object]) -> None:
        """Read what the program says until something is true."""
        until = time.monotonic() + LONGEST_S
        while not condition():
            assert time.monotonic() < until, self.said
            assert self._read(), self.said

    def read_to_the_end(self) -> int:
        """Read what the program says until it ends, and return its exit code."""
        until = time.monotonic() + LONGEST_S
        while self._read():
            assert time.monotonic() < until, self.said
        return self.program.wait(LONGEST_S)

    def _read(self) -> bool:
        """Read what there is, waiting a little for it; False after the end."""
        if not select.select([self._own], [], [], 0.1)[0]:
            return True
        try:
            read = os.read(self._own, 1 << 16)
        except OSError:  # all its ends have been closed
            return False
        text = read.decode(errors="replace")
        self.said += text
        self.screen.write(text)
        return bool(read)
