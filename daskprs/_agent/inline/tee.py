"""A stream that writes what a script prints where the caller sees it, and into a log."""

from __future__ import annotations

import io
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from daskprs._system.masks import MaskedStream
from daskprs._system.standard_streams import is_terminal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed import ReadableBuffer

    from daskprs._system.masks import Mask

CLOSED = -1


class Tee:
    """The stdout or stderr of a script in its caller's process; secrets are masked in both."""

    def __init__(self, shown: Any, log: str, mask: Mask | None) -> None:
        self._shown = shown
        self.fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        """The descriptor of the log."""
        self._masked = MaskedStream(mask) if mask else None
        self.buffer = _Bytes(self)
        """What takes bytes in place of text."""

    def write(self, text: str) -> int:
        """Write a text; it is in the log at once, as a debugger may stop the script."""
        self.write_bytes(text.encode("utf-8", "backslashreplace"))
        return len(text)

    def writelines(self, texts: Iterable[str]) -> None:
        """Write several texts."""
        for text in texts:
            self.write(text)

    def flush(self) -> None:
        """Show what the caller's stream holds back."""
        if self._shown is not None:
            with suppress(OSError):
                self._shown.flush()

    def isatty(self) -> bool:
        """Say whether the caller's stream is a terminal."""
        return is_terminal(self._shown)

    def write_bytes(self, written: bytes) -> None:
        """Write bytes, which are text in UTF-8."""
        self._write(written if self._masked is None else self._masked.next(written))

    def close(self) -> None:
        """Write what was held back, and close the log; the caller's stream stays open.

        A logger or a thread of the script may keep this stream. Its descriptor's number is soon
        that of another file, such as the next job's journal, so nothing is written to it any more.
        """
        if self.fd != CLOSED:
            if self._masked is not None:
                self._write(self._masked.last())
            fd, self.fd = self.fd, CLOSED
            os.close(fd)

    def _write(self, written: bytes) -> None:
        text = written.decode("utf-8", "replace")
        with suppress(OSError):  # the log has it
            self._show(text)
        while written and self.fd != CLOSED:
            written = written[os.write(self.fd, written) :]

    def _show(self, text: str) -> None:
        if self._shown is None:  # it was closed before the program began
            return
        try:
            self._shown.write(text)
        except UnicodeEncodeError:  # a terminal of another encoding
            self._shown.write(text.encode("ascii", "backslashreplace").decode())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shown, name)


class _Bytes(io.RawIOBase):
    """Takes the bytes that a script writes to ``sys.stdout.buffer``."""

    def __init__(self, tee: Tee) -> None:
        self._tee = tee

    def writable(self) -> bool:
        return True

    def write(self, written: ReadableBuffer, /) -> int:
        as_bytes = bytes(written)
        self._tee.write_bytes(as_bytes)
        return len(as_bytes)
