"""The spool: what came back, in the order in which it came, with one file for each epoch."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import IO, TYPE_CHECKING

from daskprs.errors import JournalError
from daskprs.output.commits import Region, Regions
from daskprs.output.journal import write_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daskprs.core.outcomes import Extent

COPY_BYTES = 1 << 22
"""Files are copied and checked in pieces of this size."""


class Spool:
    """Appends extents to the spool file of one epoch."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        self._end = 0

    def append(self, extents: Sequence[Extent | None], pieces: Sequence[memoryview]) -> Regions:
        """Append the bytes of extents, from their files or as given, and say where they are now.

        A failure (a full disk) leaves the spool as it was: what was written of it lies beyond the
        end, and is overwritten or cut off.

        Raises
        ------
        JournalError
            When the bytes are not those that the agent has written.

        """
        regions = Regions([], [], [])
        gathered: list[memoryview] = []
        start = end = self._end
        for extent, piece in zip(extents, pieces, strict=True):
            offset, length, checksum = end, 0, 0
            if extent is not None and extent.length:
                if extent.file is None:
                    length, checksum = len(piece), extent.checksum  # checked when published
                    gathered.append(piece)
                else:
                    write_at(self._fd, memoryview(b"".join(gathered)), start)
                    gathered.clear()
                    length, checksum = self._copy(Path(extent.file), end)
                    start = end + length
                _check(extent, length, checksum)
                end += length
            for column, value in zip(regions, (offset, length, checksum), strict=True):
                column.append(value)
        write_at(self._fd, memoryview(b"".join(gathered)), start)
        self._end = end
        for extent in extents:
            if extent is not None and extent.file is not None:
                Path(extent.file).unlink(missing_ok=True)
        return regions

    def sync(self) -> None:
        """Make what was appended survive a loss of power."""
        os.fdatasync(self._fd)

    def close(self) -> None:
        """Cut off what was not finished, and close the file."""
        try:
            os.ftruncate(self._fd, self._end)
        finally:
            os.close(self._fd)

    def _copy(self, source: Path, end: int) -> tuple[int, int]:
        length = checksum = 0
        with source.open("rb") as file:
            while piece := file.read(COPY_BYTES):
                write_at(self._fd, memoryview(piece), end + length)
                length += len(piece)
                checksum = zlib.crc32(piece, checksum)
        return length, checksum


def _check(extent: Extent, length: int, checksum: int) -> None:
    if (length, checksum) != (extent.length, extent.checksum):
        msg = (
            f"a result arrived damaged: {extent.length} bytes with the checksum "
            f"{extent.checksum:08x} were written, and {length} with {checksum:08x} came from "
            f"{extent.file or 'the agent'}. Resume the job: what is committed is kept."
        )
        raise JournalError(msg)


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
