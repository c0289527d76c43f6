"""Log files that are appended to in the driver: buffered, and written out about once a second."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FLUSH_EVERY_S = 1.0


class LogFiles:
    """Appends text to files by path."""

    def __init__(self) -> None:
        self._pending: dict[Path, list[str]] = {}
        self._flushed_s = time.monotonic()

    def write(self, path: Path, text: str) -> None:
        """Append text to a file, some time within the next second."""
        self._pending.setdefault(path, []).append(text)

    def flush_if_due(self) -> None:
        """Write what has waited for a second."""
        if time.monotonic() - self._flushed_s >= FLUSH_EVERY_S:
            self.flush()

    def flush(self) -> None:
        """Write everything."""
        self._flushed_s = time.monotonic()
        pending, self._pending = self._pending, {}
        for path, pieces in pending.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.writelines(pieces)
