"""Mistakes in YAML files, each with its place; all mistakes of a file are reported at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from daskprs.errors import YamlError

if TYPE_CHECKING:
    from collections.abc import Iterable


T = TypeVar("T")
_PLACE = re.compile(r"(.+?):(\d+):(\d+): ", re.DOTALL)


class SourceLocation(NamedTuple):
    """A place in a file; lines and columns count from 1, and are 0 outside of files."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        """Return the place as editors and compilers write it."""
        if not self.line:
            return self.file
        return f"{self.file}:{self.line}:{self.column}"


class Mistake(NamedTuple):
    """A mistake at a place, with the rule that it breaks."""

    place: SourceLocation
    key: str
    """The dotted path to the value; empty for the file as a whole."""
    told: str
    """The rule and the value, in a sentence."""
    is_warning: bool = False
    """Whether the file can run in spite of the mistake."""

    def __str__(self) -> str:
        """Return the mistake as one line."""
        kind = "warning: " if self.is_warning else ""
        return f"{self.place}: {kind}{f'{self.key}: ' if self.key else ''}{self.told}"


def refuse(mistakes: Iterable[Mistake]) -> None:
    """Raise all mistakes that are not warnings, if any: a YamlError has a line for each."""
    wrong = [str(one) for one in sorted(mistakes) if not one.is_warning]
    if wrong:
        raise YamlError("\n".join(wrong))


def whole(found: T | None, mistakes: Iterable[Mistake]) -> T:
    """Return what was found; refuse all mistakes if there are any, as there are without it."""
    refuse(mistakes)
    return cast("T", found)


def place_in(line: str) -> tuple[SourceLocation | None, str]:
    """Return the place at the start of a line, None without one, and what the line goes on with."""
    found = _PLACE.match(line)
    if found is None:
        return None, line
    return SourceLocation(found[1], int(found[2]), int(found[3])), line[found.end() :]
