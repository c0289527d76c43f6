"""Times of files as a host saw them first, shared by all processes of the host."""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

RECORD = struct.Struct("<Qq")
"""A digest of the path, and the time in nanoseconds."""
RECORDS = 1 << 20
"""Places in the table; the file is sparse, so that only those in use take room."""
MOST_TRIED = 64
"""Places that are looked at for a file; in a table so full its time is not recorded."""


class TimesSeen:
    """A table in a file: the first time that any process has recorded for a path.

    Where the file cannot be used, as on a full disk, each time is the first.

    Parameters
    ----------
    file
        The table; it need not exist.

    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._fd = -1
        self._lock = threading.Lock()
        self._last = ("", 0)

    def first(self, path: str, time_ns: int) -> int:
        """Return the first time that was seen of a file; this one where none was."""
        with self._lock:
            if self._last[0] != path:
                try:
                    self._last = path, self._recorded(path, time_ns)
                except OSError:
                    return time_ns
            return self._last[1]

    def _recorded(self, path: str, time_ns: int) -> int:
        if self._fd < 0:
            self._fd = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        digest = hashlib.blake2b(path.encode("utf-8", "surrogateescape"), digest_size=8).digest()
        key = int.from_bytes(digest, "little") or 1
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            return self._found(key, time_ns)
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _found(self, key: int, time_ns: int) -> int:
        for step in range(MOST_TRIED):
            offset = (key + step) % RECORDS * RECORD.size
            record = os.pread(self._fd, RECORD.size, offset).ljust(RECORD.size, b"\0")
            other, first_ns = RECORD.unpack(record)
            if other == key:
                return int(first_ns)
            if other == 0:
                os.pwrite(self._fd, RECORD.pack(key, time_ns), offset)
                break
        return time_ns
