"""Whole records of a text file, by byte ranges: a record belongs to the range it starts in."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from daskprs.errors import LoadError
from daskprs.inputs.text.file import EndsEarly
from daskprs.inputs.text.record_scan import LF, Positions

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK_BYTES = 1 << 20
TAIL_BYTES = 1 << 13
"""Bytes first read beyond the end of a range; doubled until a record has ended."""
LONGEST_BYTES = 128 << 20
"""Bytes beyond its range at which a record is reported as an unclosed quote."""


class Bytes(Protocol):
    """Bytes that are read at offsets: a file, or bytes in memory."""

    path: str

    def read(self, start: int, length: int) -> bytes:
        """Return up to `length` bytes from `start`; fewer at the end only.

        A file that is cut short raises `EndsEarly` where its end is among these bytes.
        """
        ...


class Scan(Protocol):
    """Finds record ends in chunks that follow each other."""

    is_local: bool
    """Whether a line break ends a record, whatever came before it."""

    @property
    def is_quoted(self) -> bool:
        """Whether the last byte lies in a quoted field."""
        ...

    @property
    def at_record_start(self) -> bool:
        """Whether a record has just ended, for certain."""
        ...

    def skip(self, chunk: bytes) -> None:
        """Go over a chunk whose record ends do not matter."""
        ...

    def ends(self, chunk: bytes) -> Positions:
        """Return the positions in a chunk after which a record has ended."""
        ...


class LineScan:
    """Finds line feeds: for records that hold no line breaks, and may end in a carriage return."""

    is_local = True
    is_quoted = False

    def __init__(self) -> None:
        self._last = LF

    @property
    def at_record_start(self) -> bool:
        """Whether a line has just ended."""
        return self._last == LF

    def skip(self, chunk: bytes) -> None:
        """Go over a chunk."""
        self._last = chunk[-1] if chunk else self._last

    def ends(self, chunk: bytes) -> Positions:
        """Return the positions after line feeds."""
        self.skip(chunk)
        return np.flatnonzero(np.frombuffer(chunk, np.uint8) == LF) + 1


NewScan = Callable[[], Scan]


class Records(NamedTuple):
    """Whole records, and the offset of the first."""

    body: bytes
    start: int
    is_open: bool = False
    """Whether the file ends in the last one's quotes."""


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

    def __init__(self, file: Bytes, begin: int, new_scan: NewScan) -> None:
        self._file = file
        self._new_scan = new_scan
        self._starts = [begin]
        """Known record starts, in order; the end of the file may be one."""

    def between(self, start: int, stop: int) -> Records:
        """Return what lies between two record starts that `cut` has given."""
        body = self._file.read(start, stop - start)
        if len(body) < stop - start:
            msg = f"{self._file.path} is shorter than it was: it ends before byte {stop}."
            raise LoadError(msg)
        scan = self._new_scan()
        scan.skip(body)
        return Records(body, start, scan.is_quoted)

    def starting_in(self, start: int, stop: int) -> Records:
        """Return the records that start from `start` up to, not including, `stop`."""
        first = self._first_start(start)
        if first >= stop:
            return Records(b"", first)
        body = self._file.read(first, stop - first)
        scan = self._new_scan()
        scan.skip(body)
        if len(body) == stop - first and not scan.at_record_start:
            rest, is_open = self._rest_of_record(scan, stop)
            body += rest
        else:
            is_open = scan.is_quoted
        self._remember(first + len(body))
        return Records(body, first, is_open)

    def cut(self, size: int, chunk_bytes: int | None = None) -> Iterator[tuple[int, int]]:
        """Yield ranges of whole records of about `size` bytes each, to the end of the file.

        Raises
        ------
        EndsEarly
            After all whole ranges, if the file is cut short.

        """
        start = at = self._starts[0]
        scan = self._new_scan()
        short: EndsEarly | None = None
        while short is None:
            try:
                chunk = self._file.read(at, chunk_bytes or CHUNK_BYTES)
            except EndsEarly as error:
                chunk, short = error.body, error
            if not chunk:
                break
            ends = scan.ends(chunk) + at
            while len(ends) and ends[-1] - start >= size:
                end = int(ends[np.searchsorted(ends, start + size)])
                yield start, end
                start = end
            at += len(chunk)
            self._refuse_endless(start + size, at)
        if short is not None:
            raise short
        if at > start:
            yield start, at

    def ended_before(self, stop: int) -> bytes:
        """Return the records that have ended before `stop`, from the first one on."""
        start = self._starts[0]
        body = self._file.read(start, max(0, stop - start))
        ends = self._new_scan().ends(body)
        return body[: int(ends[-1])] if len(ends) else b""

    def _rest_of_record(self, scan: Scan, start: int) -> tuple[bytes, bool]:
        """Return what a record holds beyond `start`, and whether it ends in quotes."""
        pieces: list[bytes] = []
        at = start
        while piece := self._file.read(at, max(TAIL_BYTES, at - start)):
            ends = scan.ends(piece)
            if len(ends):
                pieces.append(piece[: int(ends[0])])
                return b"".join(pieces), False
            pieces.append(piece)
            at += len(piece)
            self._refuse_endless(start, at)
        return b"".join(pieces), scan.is_quoted

    def _refuse_endless(self, start: int, at: int) -> None:
        if at - start > LONGEST_BYTES:
            msg = (
                f"{self._file.path}: a record goes on from byte {start}, or before it, for more "
                f"than {LONGEST_BYTES >> 20} MB. Is there a quote that nobody closes? Say "
                "support_multi_line=False where fields hold no line breaks."
            )
            raise LoadError(msg)

    def _first_start(self, offset: int) -> int:
        """Return the first record start at or after an offset; the end of the file if none."""
        at = self._starts[max(bisect_right(self._starts, offset) - 1, 0)]
        if at >= offset:
            return at
        scan = self._new_scan()
        if scan.is_local:
            at = offset - 1
        # Bytes before the last one in front of the offset only tell whether it lies in quotes.
        while at < offset - 1 and (chunk := self._file.read(at, min(CHUNK_BYTES, offset - 1 - at))):
            scan.skip(chunk)
            at += len(chunk)
        while piece := self._file.read(at, max(TAIL_BYTES, at - offset)):
            ends = scan.ends(piece) + at
            found = int(np.searchsorted(ends, offset))
            if found < len(ends):
                at = int(ends[found])
                break
            at += len(piece)
        self._remember(at)
        return at

    def _remember(self, start: int) -> None:
        place = bisect_left(self._starts, start)
        if place == len(self._starts) or self._starts[place] != start:
            self._starts.insert(place, start)
