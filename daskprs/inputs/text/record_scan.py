"""Where records of delimited text end, exactly as pandas' parser has it, many bytes at a time.

A quote opens a quoted field only at the start of a field; two of them inside stand for one; after
the closing one the field goes on as plain text. What a quote does hence depends on the byte before
it and on what the quote before it did. In all but odd files every second quote opens, which is
checked for a whole chunk at once; where a stray one breaks the rule, a chunk is walked through
quote by quote.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

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
    """What stands before a quote."""

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


class RecordScan:
    """Finds record ends in chunks that follow each other, beginning at a record start.

    Parameters
    ----------
    delimiter
        The byte between fields; None where quotes mean nothing, and each line is a record.

    """

    def __init__(self, delimiter: int | None) -> None:
        self.is_local = delimiter is None
        """Whether a line break ends a record, whatever came before it."""
        before = bytearray(256)
        before[QUOTE] = Before.QUOTE
        before[LF] = before[CR] = Before.FIELD_START
        if delimiter is not None:
            before[delimiter] = Before.FIELD_START
        self._before = bytes(before)
        self._state = State.PLAIN
        self._last = LF

    @property
    def is_quoted(self) -> bool:
        """Whether the last byte lies in a quoted field."""
        return self._state == State.QUOTED

    @property
    def at_record_start(self) -> bool:
        """Whether a record has ended; not yet after a carriage return: a line feed may come."""
        return self._last == LF and not self.is_quoted

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
