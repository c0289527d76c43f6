"""What a group of outcomes made, form by form: as columns, and the bytes that came along."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from daskprs.core.outcomes import Outcome
    from daskprs.core.packed import Packed


class Extents(NamedTuple):
    """The extents of one form, one for each outcome; an outcome without has a length of 0."""

    length: list[int]
    checksum: list[int]
    file: list[str | None]

    def carried(self) -> list[int]:
        """Return how many bytes of each came along, and lie in no file."""
        return [0 if file else length for length, file in zip(self.length, self.file, strict=True)]


def extents_of(outcomes: Packed[Outcome], form: str) -> Extents:
    """Return the extents of a form, ``text`` or ``typed``."""
    length, checksum, file = (
        outcomes.column(f"{form}.{part}") for part in ("length", "checksum", "file")
    )
    return Extents([n or 0 for n in length], [c or 0 for c in checksum], list(file))


def split(payload: bytes, text: Extents, typed: Extents) -> tuple[bytes, bytes]:
    """Return the bytes of either form; they came text and typed by turns."""
    texts, values = text.carried(), typed.carried()
    if not any(values):
        return payload, b""
    if not any(texts):
        return b"", payload
    parts: tuple[list[memoryview], list[memoryview]] = ([], [])
    view, at = memoryview(payload), 0
    for lengths in zip(texts, values, strict=True):
        for part, length in zip(parts, lengths, strict=True):
            part.append(view[at : at + length])
            at += length
    return b"".join(parts[0]), b"".join(parts[1])
