"""Masks: secrets in text and in streams of bytes are replaced, as they stand there or quoted."""

from __future__ import annotations

import json
from functools import cache
from itertools import repeat
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Span = tuple[int, int]
    """The first byte of what is masked, and the byte behind it."""

MASK = b"***"
LONG_LINE = 8
"""Characters from which a line of a secret of several lines, such as a key, is masked by itself."""


class Mask:
    """Replaces the forms of some secrets.

    A secret is found as it is, as `repr`, JSON and URLs write it, and line by line. Other forms,
    such as base64, are not found.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms = tuple({form for secret in secrets for form in _forms(secret) if form})
        self._firsts = {form[0] for form in self._forms}

    @property
    def forms(self) -> list[str]:
        """The texts that are replaced, the longest first."""
        forms = sorted(self._forms, key=len, reverse=True)
        return [form.decode("utf-8", "surrogateescape") for form in forms]

    def __bool__(self) -> bool:
        return bool(self._forms)

    def text(self, text: str) -> str:
        """Return a text without the secrets."""
        if not self:
            return text
        masked = MaskedStream(self).last(text.encode("utf-8", "surrogatepass"))
        return masked.decode("utf-8", "surrogatepass")

    def spans(self, data: bytes) -> Iterator[Span]:
        """Yield where the secrets are, each by itself."""
        for form in self._forms:
            at = data.find(form)
            while at >= 0:
                yield at, at + len(form)
                at = data.find(form, at + 1)

    def tail(self, data: bytes) -> int:
        """Return the place from which on the bytes may be the beginning of a secret."""
        longest = max(map(len, self._forms), default=1)
        first = max(0, len(data) - longest + 1)
        for at in range(first, len(data)):
            if data[at] in self._firsts and any(
                map(bytes.startswith, self._forms, repeat(data[at:]))
            ):
                return at
        return len(data)


class MaskedStream:
    """Masks a stream of bytes in pieces, wherever it is cut."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._held = b""
        """Bytes that may be the beginning of a secret."""
        self._covered = 0
        """Number of bytes at the beginning of these that a mask stands for already."""

    @property
    def held_bytes(self) -> int:
        """The number of bytes that are still to be returned, unless a mask will stand for them."""
        return len(self._held) - self._covered

    def next(self, piece: bytes) -> bytes:
        """Return the masked bytes as far as what follows cannot change them."""
        return self._masked(self._held + piece, is_last=False)

    def last(self, piece: bytes = b"") -> bytes:
        """Return all masked bytes that are left."""
        return self._masked(self._held + piece, is_last=True)

    def _masked(self, data: bytes, *, is_last: bool) -> bytes:
        end = len(data) if is_last else self._mask.tail(data)
        shown, at = [], self._covered
        for start, stop in sorted(self._mask.spans(data)):
            if start >= end:
                break
            if start >= at:
                shown += [data[at:start], MASK]
            at = max(at, stop)
        shown.append(data[at:end])
        self._held, self._covered = data[end:], max(0, at - end)
        return b"".join(shown)


def _forms(secret: str) -> Iterator[bytes]:
    """Yield the forms in which a secret may be written."""
    as_bytes = secret.encode("utf-8", "surrogateescape")
    lines = [one for one in map(str.strip, secret.splitlines()) if len(one) >= LONG_LINE]
    as_json = (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
    in_urls = (quote(as_bytes, safe=""), quote(as_bytes), quote_plus(as_bytes))
    for text in (secret, repr(secret)[1:-1], *as_json, *in_urls, *lines):
        yield text.encode("utf-8", "surrogatepass")
    yield as_bytes


@cache
def mask_of(*secrets: str) -> Mask:
    """Return the mask of some secrets; the forms of the same ones are made once."""
    return Mask(secrets)


_of_process = Mask()


def install(mask: Mask) -> None:
    """Make a mask that of this process, an agent."""
    global _of_process  # noqa: PLW0603 - there is one in each process
    _of_process = mask


def installed() -> Mask:
    """Return the mask of this process."""
    return _of_process


def masked(text: str) -> str:
    """Return a text without the secrets of this process."""
    return _of_process.text(text)
