"""Expressions in Azure's files: ``${{inputs.x}}``, and ``$[[--flag ${{inputs.x}}]]``.

A text is parsed into parts first. A function then resolves each reference, so that the same parser
serves commands, arguments, paths and bindings. In words and commands, a path with a space stays one
word.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias, TypeVar

from daskprs._suggest import nearest_of

OPEN, CLOSE = "${{", "}}"
OPEN_OPTIONAL, CLOSE_OPTIONAL = "$[[", "]]"
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
KNOWN = (
    "inputs.<name>",
    "outputs.<name>",
    "parent.inputs.<name>",
    "parent.outputs.<name>",
    "parent.jobs.<step>.inputs.<name>",
    "parent.jobs.<step>.outputs.<name>",
    "name",
    "output_name",
    "default_datastore",
)
"""The references that are allowed between the braces."""
SHOWN_CHARACTERS = 80
T = TypeVar("T")


class ExpressionError(ValueError):
    """A text whose expressions cannot be understood."""


class Reference(NamedTuple):
    """The reference between the braces."""

    scope: str
    """``inputs``, ``outputs``, or a word that stands for itself: ``name``."""
    name: str = ""
    of_parent: bool = False
    step: str | None = None
    """The step in ``parent.jobs.<step>``."""

    def __str__(self) -> str:
        """Return it as it is written."""
        step = f"jobs.{self.step}." if self.step is not None else ""
        parent = "parent." if self.of_parent else ""
        name = f".{self.name}" if self.name else ""
        return f"{OPEN}{parent}{step}{self.scope}{name}{CLOSE}"


class Optional(NamedTuple):
    """Text that is left out when an input in it was not given."""

    parts: tuple[str | Reference, ...]


Part: TypeAlias = str | Reference | Optional
Resolve: TypeAlias = Callable[[Reference], str | None]
"""Returns the value of a reference; None for an optional input that was not given."""


def parsed(text: str) -> tuple[Part, ...]:
    """Return the parts of a text; refuse open braces and expressions that are not in `KNOWN`."""
    plain, *optional = text.split(OPEN_OPTIONAL)
    parts: list[Part] = [*_simple_parts(plain)]
    for at, rest in enumerate(optional, 1):
        inside, close, after = rest.partition(CLOSE_OPTIONAL)
        if not close and at < len(optional):
            msg = f"{_shown(text)}: {OPEN_OPTIONAL} within {OPEN_OPTIONAL}"
            raise ExpressionError(msg)
        if not close:
            raise _unclosed(OPEN_OPTIONAL + rest, CLOSE_OPTIONAL)
        parts += [Optional(tuple(_simple_parts(inside))), *_simple_parts(after)]
    return tuple(parts)


def _simple_parts(text: str) -> Iterator[str | Reference]:
    """Yield the parts of a text without optional parts."""
    plain, *braces = text.split(OPEN)
    if plain:
        yield plain
    for rest in braces:
        inside, close, after = rest.partition(CLOSE)
        if not close:
            raise _unclosed(OPEN + rest, CLOSE)
        yield reference(inside)
        if after:
            yield after


def reference(text: str) -> Reference:
    """Return the reference that the words between the braces mean."""
    words = text.strip().split(".")
    if not all(NAME.fullmatch(word) for word in words):
        raise _unknown(text)
    of_parent = words[0] == "parent"
    words = words[of_parent:]
    step = None
    if words[:1] == ["jobs"] and len(words) > 2:  # noqa: PLR2004 - jobs, a step, and what of it
        of_parent, step, words = True, words[1], words[2:]
    if len(words) > 2 and words[-1] == "path":  # noqa: PLR2004 - an older way to say the same
        words = words[:-1]
    match words:
        case ["inputs" | "outputs" as scope, _, *_]:
            return Reference(scope, ".".join(words[1:]), of_parent, step)
        case ["name" | "output_name" | "default_datastore" as scope] if not of_parent:
            return Reference(scope)
    raise _unknown(text)


def references(parts: tuple[Part, ...]) -> Iterator[Reference]:
    """Yield all references of a parsed text."""
    for part in parts:
        if isinstance(part, Reference):
            yield part
        elif isinstance(part, Optional):
            yield from references(part.parts)


def plain_options(text: str) -> list[str]:
    """Return warnings about ``$[[ ]]`` without a reference in it: such a part is always text."""
    try:
        parts = parsed(text)
    except ExpressionError:
        return []  # whoever fills it in reports the error
    options = [part for part in parts if isinstance(part, Optional)]
    plain = [one for one in options if not any(references((one,)))]
    return [_unbound("".join(map(str, one.parts))) for one in plain]


def _unbound(text: str) -> str:
    name = text.strip() if text.strip().startswith("inputs.") else "inputs.x"
    right = f"--flag {OPEN}{name}{CLOSE}"
    return (
        f"{OPEN_OPTIONAL}{text}{CLOSE_OPTIONAL} has no {OPEN}…{CLOSE} in it, so it stays as the "
        f"text {text!r}: write {OPEN_OPTIONAL}{right}{CLOSE_OPTIONAL}"
    )


def only_reference(parts: tuple[Part, ...]) -> Reference | None:
    """Return the reference that is the whole of a text."""
    return parts[0] if len(parts) == 1 and isinstance(parts[0], Reference) else None


def filled_in(parts: tuple[Part, ...], resolve: Resolve) -> str:
    """Return the text with the values of its references; outside of ``$[[ ]]`` each needs one."""
    return "".join(_texts(parts, resolve))


def named(one: Reference, found: Mapping[str, T]) -> T:
    """Return the value that a reference names, or refuse it with the nearest name."""
    if one.name not in found:
        msg = f"{one}: there is no {one.scope[:-1]} {one.name!r}; {nearest_of(one.name, [*found])}"
        raise ExpressionError(msg)
    return found[one.name]


def _texts(parts: tuple[Part, ...], resolve: Resolve) -> Iterator[str]:
    for part in parts:
        match part:
            case str():
                yield part
            case Reference():
                value = resolve(part)
                if value is None:
                    msg = (
                        f"{part} was not given a value. What is optional is written "
                        f"{OPEN_OPTIONAL}--flag {part}{CLOSE_OPTIONAL}"
                    )
                    raise ExpressionError(msg)
                yield value
            case Optional(inner):
                if all(resolve(one) is not None for one in references(inner)):
                    yield from _texts(inner, resolve)


def _unknown(text: str) -> ExpressionError:
    shown = f"{OPEN}{_shown(text)}{CLOSE}"
    return ExpressionError(f"{shown}: this expression is unknown; known are {', '.join(KNOWN)}")


def _unclosed(text: str, close: str) -> ExpressionError:
    return ExpressionError(f"{_shown(text)}: {close} is missing")


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


# ---- words and commands ----


MARK = "\ufdd0"
"""Placeholder for a value while text is split into words; files cannot contain it."""


def words(text: str, resolve: Resolve) -> list[str]:
    """Return the words of a list of arguments; a value is never cut into several.

    Quotes that do not close are a ValueError.
    """
    found = []
    whole, values = marked(text, resolve)
    for word in shlex.split(whole):
        pieces = enumerate(word.split(MARK))
        found.append("".join(values[int(piece)][1] if at % 2 else piece for at, piece in pieces))
    return found


def command_line(text: str, resolve: Resolve, is_path: Callable[[Reference], bool]) -> str:
    """Return a command for a shell: paths are quoted where the command does not quote them.

    Other values stand as they are, so that one may hold several words.
    """
    line, quote = "", ""
    whole, values = marked(text, resolve)
    for at, piece in enumerate(whole.split(MARK)):
        if at % 2 == 0:
            quote = _quote_after(piece, quote)
            line += piece
            continue
        one, value = values[int(piece)]
        line += shlex.quote(value) if is_path(one) and not quote else value
    return line


def marked(text: str, resolve: Resolve) -> tuple[str, list[tuple[Reference, str]]]:
    """Return a text with the number of each value between marks, and the values."""
    values: list[tuple[Reference, str]] = []

    def number(one: Reference) -> str | None:
        value = resolve(one)
        if value is None:
            return None
        values.append((one, value))
        return f"{MARK}{len(values) - 1}{MARK}"

    return filled_in(parsed(text), number), values


def _quote_after(text: str, quote: str) -> str:
    """Return the quote that is open after a text."""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
    return quote
