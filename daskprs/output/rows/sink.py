"""Bytes of one attempt: written to the spool of its agent, or held until they are sent."""

from __future__ import annotations

import io
import zlib
from typing import TYPE_CHECKING

from daskprs.core.outcomes import Extent

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from daskprs.output.spool.agent_spool import SpoolFile


class Sink(io.RawIOBase):
    """Collects bytes and their checksum; usable as a binary file.

    Parameters
    ----------
    file
        The spool file that takes the bytes; None: they are held here.
    from_bytes
        Fewest bytes that go to the spool; fewer are held here, too.

    """

    def __init__(self, file: SpoolFile | None = None, from_bytes: int = 0) -> None:
        self._file = file
        self._from_bytes = from_bytes
        self._offset: int | None = None
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
        if self._offset is None and self._length >= self._from_bytes:
            self.put_aside()
        if self._file is None or self._offset is None:
            self._pieces.append(bytes(view))
        else:
            self._file.append(view)
        return len(view)

    @property
    def is_aside(self) -> bool:
        """Whether the bytes are in the spool."""
        return self._offset is not None

    def put_aside(self) -> None:
        """Move held bytes into the spool, and write later ones there."""
        if self._file is not None and self._offset is None:
            self._offset = self._file.end
            for piece in self._pieces:
                self._file.append(memoryview(piece))
            self._pieces.clear()

    def finish(self) -> tuple[Extent, bytes]:
        """Return the extent of the written bytes, and the bytes unless they are in a spool."""
        return Extent(self._length, self._checksum, self._offset), b"".join(self._pieces)

    def discard(self) -> None:
        """Discard the written bytes, after a failure."""
        if self._file is not None and self._offset is not None:
            self._file.cut(self._offset)
