"""Bytes that one attempt makes: in memory while they are few, in a file once they are many."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import IO

from daskprs.core.outcomes import Extent

IN_MESSAGE_BYTES = 8 << 20
"""Results up to this size travel with their outcome."""


class Sink:
    """Collects bytes and their checksum.

    Parameters
    ----------
    file
        Where they go once there are more than `IN_MESSAGE_BYTES`.

    """

    def __init__(self, file: str) -> None:
        self._name = file
        self._file: IO[bytes] | None = None
        self._pieces: list[bytes] = []
        self._length = 0
        self._checksum = 0

    def write(self, piece: bytes) -> None:
        """Append bytes."""
        self._length += len(piece)
        self._checksum = zlib.crc32(piece, self._checksum)
        if self._file is None and self._length > IN_MESSAGE_BYTES:
            self._file = Path(self._name).open("wb")  # noqa: SIM115 - closed by `close`
            self._file.write(b"".join(self._pieces))
            self._pieces.clear()
        if self._file is None:
            self._pieces.append(piece)
        else:
            self._file.write(piece)

    def close(self) -> tuple[Extent, bytes]:
        """Return what was collected: the extent, and the bytes where they are not in the file."""
        if self._file is None:
            return Extent(self._length, self._checksum), b"".join(self._pieces)
        self._file.close()
        return Extent(self._length, self._checksum, self._name), b""

    def discard(self) -> None:
        """Forget what was collected, after a failure."""
        if self._file is not None:
            self._file.close()
            Path(self._name).unlink(missing_ok=True)
