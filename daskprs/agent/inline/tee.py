"""A stream that writes what a script prints where the caller sees it, and into a log."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from daskprs.system.masks import MaskedStream

if TYPE_CHECKING:
    from daskprs.system.masks import Mask


class Tee:
    """The stdout or stderr of a script in its caller's process; secrets are masked in both."""

    def __init__(self, shown: Any, log: str, mask: Mask | None) -> None:
        self._shown = shown
        self.fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        """The descriptor of the log."""
        self._masked = MaskedStream(mask) if mask else None

    def write(self, text: str) -> int:
        """Write a text; it is in the log at once, as a debugger may stop the script."""
        written = text.encode("utf-8", "backslashreplace")
        self._write(written if self._masked is None else self._masked.next(written))
        return len(text)

    def close(self) -> None:
        """Write what was held back, and close the log; the caller's stream stays open."""
        if self._masked is not None:
            self._write(self._masked.last())
        os.close(self.fd)

    def _write(self, written: bytes) -> None:
        self._shown.write(written.decode("utf-8", "replace"))
        while written:
            written = written[os.write(self.fd, written) :]

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the caller's stream, such as `flush` or `encoding`."""
        return getattr(self._shown, name)
