"""Regions of spools, read and checked."""

from __future__ import annotations

import os
import zlib
from collections import OrderedDict
from itertools import accumulate
from typing import IO, TYPE_CHECKING, NamedTuple

from daskprs.system.regular_files import open_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from daskprs.core.columnar import ColumnBatch
    from daskprs.core.outcomes import Outcome


COPY_BYTES = 1 << 20
"""Files are read and checked in pieces of this size: small enough for the processor's cache."""
MOST_OPEN = 64
"""Most files open at once: a process may open a thousand, and each agent of a job makes one."""


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
        """Return a file, opened anew: only then a network file system updates its length."""
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
    """Read up to `length` bytes or to the end; return the number of bytes and their CRC-32."""
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


class Extents(NamedTuple):
    """The extents of one form, one per outcome; an outcome without rows has length 0."""

    length: list[int]
    checksum: list[int]
    offset: list[int]
    """Offsets in the spool of their agent; 0 for rows that came with the outcome."""

    def regions(self) -> Regions:
        """Return the regions in the spool of the agent."""
        return Regions(self.offset, self.length, self.checksum)

    def regions_from(self, start: int) -> Regions:
        """Return the regions of the extents, one after the other from `start`."""
        offsets = list(accumulate(self.length, initial=start))[:-1]
        return Regions(offsets, self.length, self.checksum)


def extents_of(outcomes: ColumnBatch[Outcome], form: str) -> Extents:
    """Return the extents of a form, ``text`` or ``typed``."""
    columns = (outcomes.column(f"{form}.{part}") for part in ("length", "checksum", "offset"))
    return Extents(*([value or 0 for value in column] for column in columns))


def split(payload: bytes, text: Extents, typed: Extents) -> tuple[bytes, bytes]:
    """Return the bytes of either form; in `payload`, text and typed bytes alternate."""
    if not any(typed.length):
        return payload, b""
    if not any(text.length):
        return b"", payload
    parts: tuple[list[memoryview], list[memoryview]] = ([], [])
    view, at = memoryview(payload), 0
    for lengths in zip(text.length, typed.length, strict=True):
        for part, length in zip(parts, lengths, strict=True):
            part.append(view[at : at + length])
            at += length
    return b"".join(parts[0]), b"".join(parts[1])
