"""A stream that writes what a script prints where the caller sees it, and into a log."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any

from daskprs._system.masks import MaskedStream

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
        try:
            self._shown.write(text)
        except UnicodeEncodeError:  # a terminal of another encoding
            self._shown.write(text.encode("ascii", "backslashreplace").decode())
        while written and self.fd != CLOSED:
            written = written[os.write(self.fd, written) :]

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
