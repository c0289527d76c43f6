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
    from daskprs.output.extents import Extents

COPY_BYTES = 1 << 22
"""Files are copied and checked in pieces of this size."""


class Spool:
    """Appends extents to the spool file of one epoch."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        self._end = 0

    def append(self, extents: Extents, payload: bytes) -> Regions:
        """Append the bytes of extents, those that are given first, and say where they are now.

        A failure (a full disk) leaves the spool as it was: what was written of it lies beyond the
        end, and is overwritten or cut off.

        Parameters
        ----------
        extents
            What to append.
        payload
            The bytes of those that are in no file, in order.

        Raises
        ------
        JournalError
            When the bytes in a file are not those that the agent has written.

        """
        write_at(self._fd, memoryview(payload), self._end)  # checked when it is published
        at, end = self._end, self._end + len(payload)
        offsets = []
        for length, checksum, file in zip(*extents, strict=True):
            if file is None:
                offsets.append(at)
                at += length
            else:
                self._copy(Path(file), end, length, checksum)
                offsets.append(end)
                end += length
        self._end = end
        for file in filter(None, extents.file):
            Path(file).unlink(missing_ok=True)
        return Regions(offsets, extents.length, extents.checksum)

    def sync(self) -> None:
        """Make what was appended survive a loss of power."""
        os.fdatasync(self._fd)

    def close(self) -> None:
        """Cut off what was not finished, and close the file."""
        try:
            os.ftruncate(self._fd, self._end)
        finally:
            os.close(self._fd)

    def _copy(self, source: Path, end: int, length: int, checksum: int) -> None:
        copied = crc = 0
        with source.open("rb") as file:
            while piece := file.read(COPY_BYTES):
                write_at(self._fd, memoryview(piece), end + copied)
                copied += len(piece)
                crc = zlib.crc32(piece, crc)
        if (copied, crc) != (length, checksum):
            msg = (
                f"a result arrived damaged: {length} bytes with the checksum {checksum:08x} were "
                f"written, and {copied} with {crc:08x} came from {source}. Resume the job: what "
                "is committed is kept."
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
