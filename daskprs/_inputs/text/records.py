"""Whole records of a text file, by byte ranges: a record belongs to the range it starts in.

Record ends are found exactly as pandas' parser has them, many bytes at a time. A quote opens a
quoted field only at the start of a field; two of them inside stand for one; after the closing one
the field goes on as plain text. What a quote does depends on the byte before it and on what the
quote before it did. In all but odd files every second quote opens, which is checked for a whole
chunk at once; where a stray one breaks the rule, a chunk is walked through quote by quote.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from daskprs._inputs.text.file import EndsEarly
from daskprs.errors import LoadError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs._inputs.text.file import TextFile

CHUNK_BYTES = 1 << 20
TAIL_BYTES = 1 << 13
"""Bytes first read beyond the end of a range; doubled until a record has ended."""
LONGEST_BYTES = 128 << 20
"""Bytes beyond its range at which a record is reported as an unclosed quote."""
QUOTE, LF, CR = b'"'[0], b"\n"[0], b"\r"[0]
SKIPPED_BYTES = 1 << 17
"""Bytes that are skipped at a time, so that the computed arrays fit into a core's cache."""
Positions = npt.NDArray[np.int64]
Cells = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]


class State(IntEnum):
    """The effect of the last quote."""

    PLAIN = 0
    """The quote was text of an unquoted field, or there was no quote."""
    QUOTED = 1
    """The quote has opened a quoted field, which goes on."""
    CLOSED = 2
    """The quote has closed a quoted field, unless another quote follows at once."""


class Before(IntEnum):
    """The kind of the character before a quote."""

    TEXT = 0
    QUOTE = 1
    FIELD_START = 2
    """A delimiter or a line break."""


NEXT = (
    bytes([State.PLAIN, State.PLAIN, State.QUOTED]),
    bytes([State.CLOSED, State.CLOSED, State.CLOSED]),
    bytes([State.PLAIN, State.QUOTED, State.QUOTED]),
)
"""The state after a quote, by the state before it and by what stands before it."""


class LineScan:
    """Finds line feeds: for records that hold no line breaks, and may end in a carriage return."""

    is_local = True
    """Whether a line break ends a record, whatever came before it."""

    def __init__(self) -> None:
        self._last = LF

    @property
    def is_quoted(self) -> bool:
        """Whether the last byte lies in a quoted field."""
        return False

    @property
    def at_record_start(self) -> bool:
        """Whether a record has ended; not yet after a carriage return: a line feed may come."""
        return self._last == LF and not self.is_quoted

    def skip(self, chunk: bytes) -> None:
        """Go over a chunk whose record ends do not matter."""
        self._last = chunk[-1] if chunk else self._last

    def ends(self, chunk: bytes) -> Positions:
        """Return the positions in a chunk after which a record has ended, in order."""
        self.skip(chunk)
        return np.flatnonzero(np.frombuffer(chunk, np.uint8) == LF) + 1


class RecordScan(LineScan):
    """Finds record ends in chunks that follow each other, beginning at a record start.

    The delimiter is the byte between fields; None where quotes mean nothing, and each line is a
    record.
    """

    def __init__(self, delimiter: int | None) -> None:
        super().__init__()
        self.is_local = delimiter is None
        before = bytearray(256)
        before[QUOTE] = Before.QUOTE
        before[LF] = before[CR] = Before.FIELD_START
        if delimiter is not None:
            before[delimiter] = Before.FIELD_START
        self._before = bytes(before)
        self._state = State.PLAIN

    @property
    def is_quoted(self) -> bool:
        """Whether the last byte lies in a quoted field."""
        return self._state == State.QUOTED

    def skip(self, chunk: bytes) -> None:
        """Go over a chunk whose record ends do not matter."""
        if b'"' in chunk:
            cells = np.frombuffer(chunk, np.uint8)
            for start in range(0, len(cells), SKIPPED_BYTES):
                part = cells[start : start + SKIPPED_BYTES]
                self._quotes(part)
                self._last = int(part[-1])
        elif chunk:
            self._last = chunk[-1]

    def ends(self, chunk: bytes) -> Positions:
        """Return the positions in a chunk after which a record has ended, in order.

        0 stands for a record that had ended with the chunk before, by a lone carriage return.
        """
        if not chunk:
            return np.empty(0, np.int64)
        pending = self._last == CR and not self.is_quoted
        cells = np.frombuffer(chunk, np.uint8)
        breaks = _line_breaks(chunk, cells)
        breaks = breaks[~self._are_quoted(chunk, breaks)]
        self._last = chunk[-1]
        ends = _ends_of(cells, breaks)
        if pending and not (chunk[0] == LF and len(ends) and ends[0] == 1):
            ends = np.concatenate([np.zeros(1, np.int64), ends])
        return ends

    def outside_quotes(self, chunk: bytes, byte: int) -> Positions:
        """Return the positions of a byte in a chunk, those in quoted fields left out."""
        places = np.flatnonzero(np.frombuffer(chunk, np.uint8) == byte)
        places = places[~self._are_quoted(chunk, places)]
        self._last = chunk[-1] if chunk else self._last
        return places

    def first_quoted_break(self, chunk: bytes) -> int | None:
        """Return the position of the first line break inside quotes."""
        if b'"' not in chunk:
            return None
        breaks = _line_breaks(chunk, np.frombuffer(chunk, np.uint8))
        are_quoted = self._are_quoted(chunk, breaks)
        return int(breaks[are_quoted][0]) if are_quoted.any() else None

    def _are_quoted(self, chunk: bytes, places: Positions) -> Flags:
        """Say which bytes of a chunk lie inside quotes, and move the state on."""
        if b'"' not in chunk:
            return np.full(len(places), self.is_quoted)
        return self._quotes(np.frombuffer(chunk, np.uint8)).are_around(places)

    def _quotes(self, cells: Cells) -> Quotes:
        """Return the quotes of a chunk, and move the state on."""
        places = np.flatnonzero(cells == QUOTE)
        first = self._state
        if self.is_local or not len(places):
            return Quotes(places[:0], first, None)
        left = cells[places - 1]
        if places[0] == 0:
            left[0] = self._last
        # Translating bytes is five times as fast as looking them up in an array.
        before = np.frombuffer(left.tobytes().translate(self._before), np.uint8)
        opening = before[int(first == State.QUOTED) :: 2]
        is_stray = first == State.PLAIN and before[0] == Before.QUOTE
        if is_stray or not opening.all():
            states = _walked(before, first)
            self._state = State(states[-1])
            return Quotes(places, first, states)
        is_open = (len(places) + (first == State.QUOTED)) % 2
        self._state = State.QUOTED if is_open else State.CLOSED
        return Quotes(places, first, None)


class Quotes(NamedTuple):
    """The quotes of a chunk."""

    places: Positions
    first: State
    """The state before the first."""
    states: Cells | None
    """The state after each of them; None where they open and close in turn."""

    def are_around(self, places: Positions) -> Flags:
        """Say which places lie inside quotes."""
        passed = np.searchsorted(self.places, places)
        if self.states is None:
            is_odd: Flags = (passed + (self.first == State.QUOTED)) % 2 == 1
            return is_odd
        states = np.concatenate([np.array([self.first], np.uint8), self.states])
        are_around: Flags = states[passed] == State.QUOTED
        return are_around


def _walked(before: Cells, first: State) -> Cells:
    """Return the state after each quote, one after the other."""
    state: int = first
    states = bytearray()
    for one in before.tobytes():
        state = NEXT[state][one]
        states.append(state)
    return np.frombuffer(states, np.uint8)


def _line_breaks(chunk: bytes, cells: Cells) -> Positions:
    is_break = cells == LF
    if b"\r" in chunk:
        is_break |= cells == CR
    return np.flatnonzero(is_break)


def _ends_of(cells: Cells, breaks: Positions) -> Positions:
    """Turn line breaks into record ends: a CR with an LF after it is one break.

    A carriage return at the very end is left open, since the next byte is unknown.
    """
    is_cr = cells[breaks] == CR
    if is_cr.any():
        after = cells[np.minimum(breaks + 1, len(cells) - 1)]
        breaks = breaks[~(is_cr & ((after == LF) | (breaks == len(cells) - 1)))]
    return breaks + 1


class _RowFlags:
    """Says which records of chunks that follow each other are rows: not those of blanks alone."""

    def __init__(self, blanks: bytes) -> None:
        self._blanks = blanks
        self._is_blank = np.zeros(256, bool)
        self._is_blank[list(blanks)] = True
        self.is_open = False
        """Whether the record that has not ended yet is a row."""

    def __call__(self, chunk: bytes, ends: Positions) -> Flags:
        """Return a flag for each record that has ended in a chunk."""
        cells = np.frombuffer(chunk, np.uint8)
        starts = np.concatenate([np.zeros(1, np.int64), ends])
        stops = np.append(ends, len(chunk))
        flags = starts < stops
        flags[flags] = ~self._is_blank[cells[starts[flags]]]
        for place in np.flatnonzero((starts < stops) & ~flags):  # few records begin with a blank
            flags[place] = bool(chunk[starts[place] : stops[place]].strip(self._blanks))
        flags[0] |= self.is_open
        self.is_open = bool(flags[-1])
        return flags[:-1]


class EvenGoals(NamedTuple):
    """Each range has the same number of rows."""

    rows: int

    def between(self, passed: int, reached: int) -> Positions:
        """Return the multiples that are above `passed`, up to `reached`."""
        return np.arange((passed // self.rows + 1) * self.rows, reached + 1, self.rows)


class GivenGoals(NamedTuple):
    """Each range ends with the next of these numbers."""

    ends: Positions

    def between(self, passed: int, reached: int) -> Positions:
        """Return the numbers that are above `passed`, up to `reached`."""
        first, stop = np.searchsorted(self.ends, [passed, reached], "right")
        return self.ends[first:stop]


RowGoals = EvenGoals | GivenGoals
"""How many rows are behind at the ends of ranges, in one file."""
NewScan = Callable[[], LineScan]


class Records(NamedTuple):
    """Whole records, and the offset of the first."""

    body: bytes
    start: int
    is_open: bool = False
    """Whether the file ends inside a quoted field of the last record."""


class TextRecords:
    """Reads the records of one file; remembers where some of them start.

    The first record starts at `begin`, behind a byte order mark and a header; `new_scan` makes a
    scan that begins at a record start.
    """

    def __init__(self, file: TextFile, begin: int, new_scan: NewScan) -> None:
        self.file = file
        self._new_scan = new_scan
        self._starts = [begin]
        """Known record starts, in order; the end of the file may be one."""

    def between(self, start: int, stop: int) -> Records:
        """Return the records between two record starts that `cut` has given."""
        body = self.file.read(start, stop - start)
        if len(body) < stop - start:
            msg = f"{self.file.path} is shorter than it was: it ends before byte {stop}."
            raise LoadError(msg)
        scan = self._new_scan()
        scan.skip(body)
        return Records(body, start, scan.is_quoted)

    def starting_in(self, start: int, stop: int) -> Records:
        """Return the records that start from `start` up to, not including, `stop`."""
        first = self._first_start(start)
        if first >= stop:
            return Records(b"", first)
        body = self.file.read(first, stop - first)
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

        A file that is cut short raises `EndsEarly` after all whole ranges.
        """
        start = at = self._starts[0]
        scan = self._new_scan()
        short: EndsEarly | None = None
        while short is None:
            try:
                chunk = self.file.read(at, chunk_bytes or CHUNK_BYTES)
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

    def cut_rows(
        self, rows: RowGoals, blanks: bytes, first: int = 0, end: int | None = None
    ) -> Iterator[tuple[int, int, int]]:
        """Yield ranges of whole records with so many rows each; the last may have fewer.

        A range is its start, its stop, and the number of its rows. A record of `blanks` alone is
        not a row. The rows start from `first` up to, not including, `end`; None is the end of the
        file. A file that is cut short raises `EndsEarly` after all whole ranges.
        """
        start = at = ended = self._first_start(first)
        stop = None if end is None else self._first_start(end)
        scan, is_row = self._new_scan(), _RowFlags(blanks)
        short: EndsEarly | None = None
        found = behind = 0
        while short is None and (stop is None or at < stop):
            wanted = CHUNK_BYTES if stop is None else min(CHUNK_BYTES, stop - at)
            try:
                chunk = self.file.read(at, wanted)
            except EndsEarly as error:
                chunk, short = error.body, error
            if not chunk:
                break
            ends = scan.ends(chunk)
            flags = is_row(chunk, ends)
            totals = found + np.cumsum(flags)
            last_found = found + int(flags.sum())
            # The first record end at which as many rows are behind as the range ends with.
            goals = rows.between(found, last_found)
            for place, goal in zip(np.searchsorted(totals, goals), goals.tolist(), strict=True):
                last = at + int(ends[place])
                yield start, last, goal - behind
                start, behind = last, goal
            found = last_found
            ended = at + int(ends[-1]) if len(ends) else ended
            at += len(chunk)
            self._refuse_endless(ended, at)
        if short is not None:
            raise short
        found += is_row.is_open
        if at > start and found > behind:
            yield start, at, found - behind

    def count_rows(self, body: bytes, blanks: bytes) -> int:
        """Return how many of some whole records are rows."""
        return int(_RowFlags(blanks)(body, self._new_scan().ends(body)).sum())

    def ended_before(self, stop: int) -> bytes:
        """Return the records that have ended before `stop`, from the first one on."""
        start = self._starts[0]
        body = self.file.read(start, max(0, stop - start))
        ends = self._new_scan().ends(body)
        return body[: int(ends[-1])] if len(ends) else b""

    def _rest_of_record(self, scan: LineScan, start: int) -> tuple[bytes, bool]:
        """Return the rest of a record from `start` on, and whether it ends in quotes."""
        pieces: list[bytes] = []
        at = start
        while piece := self.file.read(at, max(TAIL_BYTES, at - start)):
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
                f"{self.file.path}: a record goes on from byte {start}, or before it, for more "
                f"than {LONGEST_BYTES >> 20} MB. Is there a quote that is never closed? Say "
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
        # The bytes up to the last one before the offset only decide whether it lies in quotes.
        while at < offset - 1 and (chunk := self.file.read(at, min(CHUNK_BYTES, offset - 1 - at))):
            scan.skip(chunk)
            at += len(chunk)
        while piece := self.file.read(at, max(TAIL_BYTES, at - offset)):
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
