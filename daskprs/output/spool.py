"""The spool: what came back, in the order in which it came, with one file for each epoch."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from daskprs.output.commits import NO_REGION, Region

if TYPE_CHECKING:
    from daskprs.core.outcomes import Extent

COPY_BYTES = 1 << 22
"""Files are copied and checked in pieces of this size."""


class Spool:
    """Appends extents to the spool file of one epoch."""

    def __init__(self, path: Path, epoch: int) -> None:
        self._epoch = epoch
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        self._end = os.lseek(self._fd, 0, os.SEEK_END)

    def append(self, extent: Extent, piece: memoryview) -> Region:
        """Append the bytes of an extent, from its file or as given, and say where they are now.

        A failure (a full disk) leaves the spool as it was: what was written of it lies beyond the
        end, and is overwritten or cut off.
        """
        if extent.length == 0:
            return NO_REGION
        if extent.file is None:
            self._write(piece, self._end)
        else:
            self._copy(Path(extent.file))
        region = Region(self._epoch, self._end, extent.length, extent.checksum)
        self._end += extent.length
        return region

    def sync(self) -> None:
        """Make what was appended survive a loss of power."""
        os.fdatasync(self._fd)

    def close(self) -> None:
        """Cut off what was not finished, and close the file."""
        os.ftruncate(self._fd, self._end)
        os.close(self._fd)

    def _copy(self, source: Path) -> None:
        offset = self._end
        with source.open("rb") as file:
            while piece := file.read(COPY_BYTES):
                self._write(memoryview(piece), offset)
                offset += len(piece)
        source.unlink()

    def _write(self, piece: memoryview, offset: int) -> None:
        while piece:
            written = os.pwrite(self._fd, piece, offset)
            piece, offset = piece[written:], offset + written


def intact(path: Path, region: Region) -> bool:
    """Say whether the bytes of a region are there and are those that were committed."""
    if region.length == 0:
        return True
    checksum = 0
    try:
        with path.open("rb") as file:
            file.seek(region.offset)
            left = region.length
            while left:
                piece = file.read(min(left, COPY_BYTES))
                if not piece:
                    return False
                checksum = zlib.crc32(piece, checksum)
                left -= len(piece)
    except FileNotFoundError:
        return False
    return checksum == region.checksum
