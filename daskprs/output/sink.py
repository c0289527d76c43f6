"""Bytes that one attempt makes: into the spool of its agent, or into memory where it has none."""

from __future__ import annotations

import io
import zlib
from typing import TYPE_CHECKING

from daskprs.core.outcomes import Extent

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from daskprs.output.own_spool import SpoolFile


class Sink(io.RawIOBase):
    """Takes bytes and sums them up; a binary file for those that write to one.

    Parameters
    ----------
    file
        Where they go; None: they are held here.

    """

    def __init__(self, file: SpoolFile | None = None) -> None:
        self._file = file
        self._offset = None if file is None else file.end
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
        if self._file is None:
            self._pieces.append(bytes(view))
        else:
            self._file.append(view)
        return len(view)

    def finish(self) -> tuple[Extent, bytes]:
        """Return what was written: the extent, and the bytes where they are in no spool."""
        return Extent(self._length, self._checksum, self._offset), b"".join(self._pieces)

    def discard(self) -> None:
        """Take back what was written, after a failure."""
        if self._file is not None and self._offset is not None:
            self._file.cut(self._offset)
