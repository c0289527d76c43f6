"""Texts with expressions, filled in so that a path with a space stays one word."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from daskprs.azure.expressions import Optional, Reference, filled_in, parsed

if TYPE_CHECKING:
    from collections.abc import Callable

    from daskprs.azure.expressions import Resolve

MARK = "\ufdd0"
"""Stands for a value while words are told apart; it is no character that may stand in a file."""


def words(text: str, resolve: Resolve) -> list[str]:
    """Return the words of a list of arguments; a value is never cut into several.

    Raises
    ------
    ExpressionError
        For an expression that cannot be filled in.
    ValueError
        For quotes that do not close.

    """
    values: list[str] = []

    def marked(one: Reference) -> str | None:
        value = resolve(one)
        if value is None:
            return None
        values.append(value)
        return f"{MARK}{len(values) - 1}{MARK}"

    found = shlex.split(filled_in(parsed(text), marked))
    return [_unmarked(word, values) for word in found]


def _unmarked(word: str, values: list[str]) -> str:
    pieces = word.split(MARK)
    return "".join(values[int(piece)] if at % 2 else piece for at, piece in enumerate(pieces))


def command_line(text: str, resolve: Resolve, is_path: Callable[[Reference], bool]) -> str:
    """Return a command for a shell: paths are quoted where nothing quotes them already.

    Other values stand as they are, so that one may hold several words.

    Raises
    ------
    ExpressionError
        For an expression that cannot be filled in.

    """
    inside = _inside_quotes(text)

    def quoted(one: Reference) -> str | None:
        value = resolve(one)
        if value is None or not is_path(one):
            return value
        return value if shlex.quote(value) == value or one in inside else shlex.quote(value)

    return filled_in(parsed(text), quoted)


def _inside_quotes(text: str) -> set[Reference]:
    """Return the references that stand between quotes."""
    found: set[Reference] = set()
    quote = ""
    for part in parsed(text):
        for piece in part.parts if isinstance(part, Optional) else (part,):
            if isinstance(piece, str):
                quote = _quote_after(piece, quote)
            elif isinstance(piece, Reference) and quote:
                found.add(piece)
    return found


def _quote_after(text: str, quote: str) -> str:
    """Return the quote that is open after a text."""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
    return quote
