"""The standard streams of a process, where they are closed or cannot be written."""

from __future__ import annotations

import io
import os
import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[^\[]?|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def without_escapes(text: str) -> str:
    """Return text without what would move the cursor of a terminal, or change its colors."""
    return _ESCAPES.sub("", text)


def to_stderr(line: str) -> None:
    """Show a line; the work goes on where stderr is closed or cannot be written."""
    if sys.stderr is not None:  # Python's value for a stream that was closed before the start
        with suppress(OSError, ValueError):  # it was closed since, or cannot write a letter
            sys.stderr.write(f"{without_escapes(line)}\n")
            sys.stderr.flush()


def is_terminal(stream: Any) -> bool:
    """Say whether a stream is a terminal; one that is closed, or cannot say so, is none."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


def provide_streams() -> None:
    """Give a program three streams that it can use, however its caller has left them.

    A stream that is closed becomes one of ``/dev/null``. Else a file of the job would get its
    descriptor, and hold what other code prints. Stderr drops what it cannot write, such as on a
    full disk, or in a terminal that is gone: the end of a job does not depend on it.
    """
    for name in ("stdin", "stdout", "stderr"):  # by descriptor: each one gets the lowest free
        if getattr(sys, name) is None:
            null = open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8")  # noqa: PTH123, SIM115
            os.set_inheritable(null.fileno(), True)
            setattr(sys, name, null)
    stderr = sys.stderr
    if stderr is sys.__stderr__ and isinstance(stderr, io.TextIOWrapper):  # nobody has another one
        sys.stderr = io.TextIOWrapper(
            io.BufferedWriter(_DroppingFile(stderr.fileno(), "w", closefd=False)),
            stderr.encoding,
            stderr.errors,
            line_buffering=True,
        )


def drop_unwritten() -> None:
    """Drop what stdout cannot write; Python would try again at its end, and exit with 120."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        drop_stdout()


def drop_stdout() -> None:
    """Drop what stdout has not written, and all that follows."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


class _DroppingFile(io.FileIO):
    """A file that drops what cannot be written."""

    def write(self, data: ReadableBuffer, /) -> int:
        with suppress(OSError):
            written = super().write(data)
            if written:  # none if a pipe that must not block is full
                return written
        return memoryview(data).nbytes
