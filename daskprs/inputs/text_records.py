"""Whole records of a text file, by byte ranges: a record belongs to the range it starts in."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from daskprs.inputs.record_scan import Positions, RecordScan, State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs.inputs.text_file import TextFile

CHUNK_BYTES = 1 << 20
TAIL_BYTES = 1 << 16
"""Beyond the end of a range so much is read at a time, until its last record has ended."""


class Scan(Protocol):
    """Finds record ends in chunks that follow each other."""

    def ends(self, chunk: bytes) -> Positions:
        """Return the positions in a chunk after which a record has ended."""
        ...

    def finish(self) -> Positions:
        """Return the end of a record that the end of the file has settled."""
        ...


class LineScan:
    """Finds line ends: for records that hold no line breaks."""

    def ends(self, chunk: bytes) -> Positions:
        """Return the positions after line feeds."""
        return np.flatnonzero(np.frombuffer(chunk, np.uint8) == b"\n"[0]) + 1

    def finish(self) -> Positions:
        """Return nothing: no line end is left open."""
        return np.empty(0, np.int64)


NewScan = Callable[[], Scan]


def delimited_scan(delimiter: str) -> NewScan:
    """Return what makes scans of delimited text, from a record start."""
    byte = delimiter.encode()[0]
    return lambda: RecordScan(byte, State.FIELD_START)


class Records(NamedTuple):
    """Whole records, and the offset of the first."""

    body: bytes
    start: int


class TextRecords:
    """Reads the records of one file; remembers where some of them start.

    Parameters
    ----------
    file
        The file.
    begin
        Where the first record starts, behind a byte order mark and a header.
    new_scan
        Makes a scan that begins at a record start.

    """

    def __init__(self, file: TextFile, begin: int, new_scan: NewScan) -> None:
        self._file = file
        self._new_scan = new_scan
        self._starts = [begin]
        """Known record starts, in order."""

    def starting_in(self, start: int, stop: int) -> Records:
        """Return the records that start from `start` up to, not including, `stop`."""
        first = self._first_start(start)
        if first >= stop:
            return Records(b"", first)
        body = self._file.read(first, stop - first)
        scan = self._new_scan()
        ends = scan.ends(body)
        pieces, at = [body], len(body)
        if len(body) < stop - first or (len(ends) and ends[-1] == at):
            self._remember(first + at)
            return Records(body, first)
        while True:
            piece = self._file.read(first + at, TAIL_BYTES)
            ends = scan.ends(piece)
            if not piece or len(ends):
                end = int(ends[0]) if piece and len(ends) else 0
                pieces.append(piece[:end])
                self._remember(first + at + end)
                return Records(b"".join(pieces), first)
            pieces.append(piece)
            at += len(piece)

    def cut(self, size: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of whole records of about `size` bytes each, to the end of the file."""
        start = self._starts[0]
        scan = self._new_scan()
        at = start
        while chunk := self._file.read(at, CHUNK_BYTES):
            ends = scan.ends(chunk) + at
            while len(ends) and ends[-1] - start >= size:
                end = int(ends[np.searchsorted(ends, start + size)])
                yield start, end
                start = end
            at += len(chunk)
        if at > start:
            yield start, at

    def _first_start(self, offset: int) -> int:
        """Return the first record start at or after an offset; the end of the file if none."""
        place = int(np.searchsorted(self._starts, offset, side="right")) - 1
        at = self._starts[max(place, 0)]
        if at >= offset:
            return at
        scan = self._new_scan()
        while chunk := self._file.read(at, CHUNK_BYTES):
            ends = scan.ends(chunk) + at
            if len(ends) and ends[-1] >= offset:
                found = int(ends[np.searchsorted(ends, offset)])
                self._remember(found)
                return found
            at += len(chunk)
        return at

    def _remember(self, start: int) -> None:
        place = int(np.searchsorted(self._starts, start))
        if place == len(self._starts) or self._starts[place] != start:
            self._starts.insert(place, start)
