"""What a group of outcomes made, form by form: as columns, and the bytes that came along."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from daskprs.output.regions import Regions

if TYPE_CHECKING:
    from daskprs.core.columnar import Packed
    from daskprs.core.outcomes import Outcome


class Extents(NamedTuple):
    """The extents of one form, one for each outcome; an outcome without has a length of 0."""

    length: list[int]
    checksum: list[int]
    offset: list[int]
    """In the spool of their agent; 0 where they came along."""

    def regions(self) -> Regions:
        """Return where an agent has put them."""
        return Regions(self.offset, self.length, self.checksum)

    def regions_from(self, start: int) -> Regions:
        """Return where they are, one after the other."""
        offsets = list(accumulate(self.length, initial=start))[:-1]
        return Regions(offsets, self.length, self.checksum)


def extents_of(outcomes: Packed[Outcome], form: str) -> Extents:
    """Return the extents of a form, ``text`` or ``typed``."""
    columns = (outcomes.column(f"{form}.{part}") for part in ("length", "checksum", "offset"))
    return Extents(*([value or 0 for value in column] for column in columns))


def split(payload: bytes, text: Extents, typed: Extents) -> tuple[bytes, bytes]:
    """Return the bytes of either form; they came text and typed by turns."""
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
