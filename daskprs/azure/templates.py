"""Texts with expressions, filled in so that a path with a space stays one word."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from daskprs.azure.expressions import filled_in, parsed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from daskprs.azure.expressions import Reference, Resolve

MARK = "\ufdd0"
"""Placeholder for a value while text is split into words; files cannot contain it."""


def words(text: str, resolve: Resolve) -> list[str]:
    """Return the words of a list of arguments; a value is never cut into several.

    Raises
    ------
    ExpressionError
        For an expression that cannot be filled in.
    ValueError
        For quotes that do not close.

    """
    values: list[tuple[Reference, str]] = []
    found = shlex.split(_marked(text, resolve, values))
    return ["".join(_pieces(word, values)) for word in found]


def command_line(text: str, resolve: Resolve, is_path: Callable[[Reference], bool]) -> str:
    """Return a command for a shell: paths are quoted where nothing quotes them already.

    Other values stand as they are, so that one may hold several words.

    Raises
    ------
    ExpressionError
        For an expression that cannot be filled in.

    """
    values: list[tuple[Reference, str]] = []
    line, quote = "", ""
    for at, piece in enumerate(_marked(text, resolve, values).split(MARK)):
        if at % 2 == 0:
            quote = _quote_after(piece, quote)
            line += piece
            continue
        one, value = values[int(piece)]
        line += shlex.quote(value) if is_path(one) and not quote else value
    return line


def _marked(text: str, resolve: Resolve, values: list[tuple[Reference, str]]) -> str:
    """Return a text with the numbers of values in their place; append the values."""

    def number(one: Reference) -> str | None:
        value = resolve(one)
        if value is None:
            return None
        values.append((one, value))
        return f"{MARK}{len(values) - 1}{MARK}"

    return filled_in(parsed(text), number)


def _pieces(word: str, values: list[tuple[Reference, str]]) -> Iterator[str]:
    for at, piece in enumerate(word.split(MARK)):
        yield values[int(piece)][1] if at % 2 else piece


def _quote_after(text: str, quote: str) -> str:
    """Return the quote that is open after a text."""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
    return quote
