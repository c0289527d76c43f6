"""Mistakes in YAML files: all of a file in one go, each with its place."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, NamedTuple

from daskprs.errors import YamlError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class SourceLocation(NamedTuple):
    """A place in a file; lines and columns begin with 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        """Return it as editors and compilers write it."""
        return f"{self.file}:{self.line}:{self.column}"


class Mistake(NamedTuple):
    """What is wrong at a place, and what would be right."""

    place: SourceLocation
    key: str
    """The way to the value, with dots; empty for a file as a whole."""
    told: str
    """The rule and the value, in a sentence."""
    is_warning: bool = False
    """Whether it runs all the same."""

    def __str__(self) -> str:
        """Return one line."""
        kind = "warning: " if self.is_warning else ""
        return f"{self.place}: {kind}{f'{self.key}: ' if self.key else ''}{self.told}"


def refuse(mistakes: Iterable[Mistake]) -> None:
    """Raise all mistakes that are no warnings, if there are any.

    Raises
    ------
    YamlError
        A line for each.

    """
    wrong = [str(one) for one in sorted(mistakes) if not one.is_warning]
    if wrong:
        raise YamlError("\n".join(wrong))


def nearest_of(name: str, known: Sequence[str]) -> str:
    """Return the end of a sentence about an unknown name: the nearest known one, or all."""
    near = difflib.get_close_matches(name.lower(), known, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"known are {', '.join(known)}" if known else "there is none"
