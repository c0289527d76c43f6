"""The journal: what is committed, line by line, each with a checksum of its own.

A line is a CRC-32 in hex, a space, JSON, and a line feed. What follows the first line that is not
whole was being written when its writer died; it is cut off.
"""

from __future__ import annotations

import json
import os
import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_dumps = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True).encode


class Journal:
    """Appends records to the journal of one epoch."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._unwritten: list[bytes] = []

    def add(self, record: list[Any]) -> None:
        """Add a record; it is written by the next `write`."""
        body = _dumps(record).encode()
        self._unwritten.append(b"%08x %b\n" % (zlib.crc32(body), body))

    def write(self) -> None:
        """Hand what was added to the system: it survives the death of this process."""
        if self._unwritten:
            whole = b"".join(self._unwritten)
            self._unwritten.clear()
            while whole:
                whole = whole[os.write(self._fd, whole) :]

    def sync(self) -> None:
        """Make what was written survive a loss of power."""
        self.write()
        os.fdatasync(self._fd)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def records(path: Path) -> Iterator[list[Any]]:
    """Yield the records of a journal, up to the first line that is not whole."""
    with path.open("rb") as file:
        for line in file:
            checksum, _, body = line.rstrip(b"\n").partition(b" ")
            if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(body):
                return
            yield json.loads(body)
