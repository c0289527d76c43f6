"""Regions of spools, read and checked."""

from __future__ import annotations

import os
import zlib
from collections import OrderedDict
from typing import IO, TYPE_CHECKING, NamedTuple

from daskprs.regular_files import open_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


COPY_BYTES = 1 << 20
"""Files are read and checked in pieces of this size: small enough for the processor's cache."""
MOST_OPEN = 64
"""A process may have a thousand files open, and each agent of a job has made one."""


class OpenFiles:
    """Files that are read by turns, the latest of them open.

    Parameters
    ----------
    path_of
        Gives the path of a file by its number.

    """

    def __init__(self, path_of: Callable[[int], Path]) -> None:
        self._path_of = path_of
        self._open: OrderedDict[int, IO[bytes]] = OrderedDict()

    def get(self, number: int) -> IO[bytes]:
        """Return a file, opened now if it is not open."""
        file = self._open.get(number)
        if file is None:
            if len(self._open) >= MOST_OPEN:
                self._open.popitem(last=False)[1].close()
            file = self._open[number] = open_regular(self._path_of(number))
        self._open.move_to_end(number)
        return file

    def again(self, number: int) -> IO[bytes]:
        """Return a file, opened anew: only then a network file system looks how long it is."""
        self.close(number)
        return self.get(number)

    def close(self, *numbers: int) -> None:
        """Close files; without numbers all of them."""
        for number in numbers or tuple(self._open):
            if number in self._open:
                self._open.pop(number).close()


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


def write_at(fd: int, piece: memoryview, offset: int) -> None:
    """Write all of a piece at an offset of a file."""
    while piece:
        written = os.pwrite(fd, piece, offset)
        piece, offset = piece[written:], offset + written


class Region(NamedTuple):
    """Bytes in the spool of their commit."""

    offset: int
    length: int
    checksum: int


NO_REGION = Region(0, 0, 0)


class Regions(NamedTuple):
    """Regions as columns."""

    offset: Sequence[int]
    length: Sequence[int]
    checksum: Sequence[int]
