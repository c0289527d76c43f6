"""Where records of delimited text end, exactly as pandas' parser has it, many bytes at a time.

A quote opens a quoted field only at the start of a field; two of them inside stand for one; after
the closing one the field goes on as plain text. In all but odd files every second quote opens,
which is checked for a whole chunk at once; where a stray quote breaks the rule, the chunk is
walked through quote by quote.
"""

from __future__ import annotations

import re
from enum import IntEnum

import numpy as np
import numpy.typing as npt

QUOTE, LF, CR = b'"'[0], b"\n"[0], b"\r"[0]
Positions = npt.NDArray[np.int64]


class State(IntEnum):
    """Where in a record a byte stands."""

    FIELD_START = 0
    IN_FIELD = 1
    QUOTED = 2
    AFTER_QUOTE = 3
    """After a quote in a quoted field: it has closed the field, unless another one follows."""


class RecordScan:
    """Finds record ends in chunks that follow each other.

    Parameters
    ----------
    delimiter
        The byte between fields.
    state
        Where the first byte stands; a record start by default.

    """

    def __init__(self, delimiter: int, state: State = State.FIELD_START) -> None:
        self.state = state
        self.quoted_line_break = False
        """Whether a line break was met inside quotes."""
        self._delimiter = delimiter
        self._specials = re.compile(b'["\r\n' + re.escape(bytes([delimiter])) + b"]")
        self._cr_pending = False

    def ends(self, chunk: bytes) -> Positions:
        """Return the positions in a chunk after which a record has ended, in order.

        0 stands for a record that had ended with the chunk before, by a lone carriage return.
        """
        if not chunk:
            return np.empty(0, np.int64)
        cells = np.frombuffer(chunk, np.uint8)
        pending, self._cr_pending = self._cr_pending, False
        quotes = np.flatnonzero(cells == QUOTE)
        if self._is_regular(cells, quotes):
            breaks = self._regular(cells, quotes)
        else:
            breaks = self._walk(chunk)
        return self._ends_of(cells, breaks, pending=pending)

    def finish(self) -> Positions:
        """Return the end of a record that the end of the file has settled: 0, or nothing."""
        pending, self._cr_pending = self._cr_pending, False
        return np.zeros(int(pending), np.int64)

    def _is_regular(self, cells: npt.NDArray[np.uint8], quotes: Positions) -> bool:
        """Say whether every quote that comes outside of quotes opens a field, or doubles one."""
        opening = quotes[int(self.state == State.QUOTED) :: 2]
        if len(opening) == 0:
            return True
        if opening[0] == 0:
            if self.state == State.IN_FIELD:
                return False
            opening = opening[1:]
        before = cells[opening - 1]
        fine = (before == self._delimiter) | (before == LF) | (before == CR) | (before == QUOTE)
        return bool(fine.all())

    def _regular(self, cells: npt.NDArray[np.uint8], quotes: Positions) -> Positions:
        """Return the line breaks outside of quotes, and move the state on."""
        breaks = np.flatnonzero((cells == LF) | (cells == CR))
        was_quoted = int(self.state == State.QUOTED)
        if len(quotes) or was_quoted:
            outside = (np.searchsorted(quotes, breaks) + was_quoted) % 2 == 0
            self.quoted_line_break |= not outside.all()
            breaks = breaks[outside]
        if (len(quotes) + was_quoted) % 2:
            self.state = State.QUOTED
        elif cells[-1] == QUOTE:
            self.state = State.AFTER_QUOTE
        elif cells[-1] in (self._delimiter, LF, CR):
            self.state = State.FIELD_START
        else:
            self.state = State.IN_FIELD
        return breaks

    def _walk(self, chunk: bytes) -> Positions:
        """Do the same for a chunk with a stray quote, one special byte after the other."""
        breaks = []
        state, at = self.state, 0
        for special in self._specials.finditer(chunk):
            place, byte = special.start(), chunk[special.start()]
            if place > at and state in (State.FIELD_START, State.AFTER_QUOTE):
                state = State.IN_FIELD
            at = place + 1
            if state == State.QUOTED:
                if byte == QUOTE:
                    state = State.AFTER_QUOTE
                self.quoted_line_break |= byte in (LF, CR)
            elif byte == QUOTE:
                state = State.IN_FIELD if state == State.IN_FIELD else State.QUOTED
            else:
                state = State.FIELD_START
                if byte != self._delimiter:
                    breaks.append(place)
        if at < len(chunk) and state in (State.FIELD_START, State.AFTER_QUOTE):
            state = State.IN_FIELD
        self.state = state
        return np.array(breaks, np.int64)

    def _ends_of(
        self, cells: npt.NDArray[np.uint8], breaks: Positions, *, pending: bool
    ) -> Positions:
        """Turn line breaks into record ends: a CR with an LF after it is one break."""
        if len(breaks):
            is_cr = cells[breaks] == CR
            last_is_cr = breaks[-1] == len(cells) - 1 and bool(is_cr[-1])
            after = cells[np.minimum(breaks + 1, len(cells) - 1)]
            breaks = breaks[~(is_cr & (after == LF) & (breaks + 1 < len(cells)))]
            if last_is_cr:
                breaks = breaks[:-1]
                self._cr_pending = True
        ends = breaks + 1
        if pending and not (cells[0] == LF and len(ends) and ends[0] == 1):
            ends = np.concatenate([[0], ends])
        return ends
