"""Bytes that one attempt makes: in memory while they are few, in a file once they are many."""

from __future__ import annotations

import io
import os
import zlib
from pathlib import Path
from typing import IO, TYPE_CHECKING

from daskprs.core.outcomes import Extent

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

IN_MESSAGE_BYTES = 8 << 20
"""Results up to this size travel with their outcome."""


class Sink(io.RawIOBase):
    """Collects bytes and their checksum; a binary file for those that write to one.

    Parameters
    ----------
    name
        The file where they go once there are more than `IN_MESSAGE_BYTES`.

    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._file: IO[bytes] | None = None
        self._pieces: list[bytes] = []
        self._length = 0
        self._checksum = 0

    def writable(self) -> bool:
        """Say that it can be written to."""
        return True

    def write(self, piece: ReadableBuffer) -> int:
        """Append bytes."""
        view = memoryview(piece).cast("B")
        self._length += len(view)
        self._checksum = zlib.crc32(view, self._checksum)
        if self._file is None and self._length <= IN_MESSAGE_BYTES:
            self._pieces.append(bytes(view))
        else:
            self._put_aside(view)
        return len(view)

    def finish(self) -> tuple[Extent, bytes]:
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

    def _put_aside(self, view: memoryview) -> None:
        try:
            if self._file is None:
                Path(self._name).parent.mkdir(parents=True, exist_ok=True)
                self._file = Path(self._name).open("wb", buffering=0)  # noqa: SIM115 - by `finish`
            for piece in (memoryview(b"".join(self._pieces)), view):
                _write_all(self._file, piece)
            self._pieces.clear()
        except OSError as error:
            msg = f"a large result cannot be put aside ({os.strerror(error.errno or 0)})"
            raise OSError(error.errno, msg, self._name) from error


def _write_all(file: IO[bytes], piece: memoryview) -> None:
    while piece:
        piece = piece[file.write(piece) :]
