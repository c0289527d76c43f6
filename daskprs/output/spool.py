"""The spool: what came back, in the order in which it came, with one file for each epoch."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import IO, TYPE_CHECKING

from daskprs.errors import JournalError
from daskprs.output.commits import NO_REGION, Region
from daskprs.output.journal import write_at

if TYPE_CHECKING:
    from daskprs.core.outcomes import Extent

COPY_BYTES = 1 << 22
"""Files are copied and checked in pieces of this size."""


class Spool:
    """Appends extents to the spool file of one epoch."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        self._end = 0

    def append(self, extent: Extent, piece: memoryview) -> Region:
        """Append the bytes of an extent, from its file or as given, and say where they are now.

        A failure (a full disk) leaves the spool as it was: what was written of it lies beyond the
        end, and is overwritten or cut off.

        Raises
        ------
        JournalError
            When the bytes are not those that the agent has written.

        """
        if extent.length == 0:
            return NO_REGION
        if extent.file is None:
            length, checksum = len(piece), extent.checksum  # checked when it is published
            write_at(self._fd, piece, self._end)
        else:
            length, checksum = self._copy(Path(extent.file))
        if (length, checksum) != (extent.length, extent.checksum):
            msg = (
                f"a result arrived damaged: {extent.length} bytes with the checksum "
                f"{extent.checksum:08x} were written, and {length} with {checksum:08x} came from "
                f"{extent.file or 'the agent'}. Resume the job: what is committed is kept."
            )
            raise JournalError(msg)
        region = Region(self._end, length, checksum)
        self._end += length
        if extent.file is not None:
            Path(extent.file).unlink()
        return region

    def sync(self) -> None:
        """Make what was appended survive a loss of power."""
        os.fdatasync(self._fd)

    def close(self) -> None:
        """Cut off what was not finished, and close the file."""
        try:
            os.ftruncate(self._fd, self._end)
        finally:
            os.close(self._fd)

    def _copy(self, source: Path) -> tuple[int, int]:
        length = checksum = 0
        with source.open("rb") as file:
            while piece := file.read(COPY_BYTES):
                write_at(self._fd, memoryview(piece), self._end + length)
                length += len(piece)
                checksum = zlib.crc32(piece, checksum)
        return length, checksum


def holds(file: IO[bytes], region: Region) -> bool:
    """Say whether the bytes of a region are there and are those that were committed."""
    file.seek(region.offset)
    return checksum_of(file, region.length) == (region.length, region.checksum)


def checksum_of(file: IO[bytes], length: int | None = None) -> tuple[int, int]:
    """Read on, as far as `length` or to the end, and return how much there was and its CRC-32."""
    checksum = there = 0
    while length is None or there < length:
        most = COPY_BYTES if length is None else min(COPY_BYTES, length - there)
        piece = file.read(most)
        if not piece:
            break
        checksum = zlib.crc32(piece, checksum)
        there += len(piece)
    return there, checksum
