"""Suggestions for names and paths that do not exist."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WILDCARDS = frozenset("*?[")
SHOWN = 3


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a sentence with the nearest known name, for the end of a message; empty without."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" Did you mean {near[0]}?" if near else ""


def nearest_of(name: str, known: Sequence[str]) -> str:
    """Return a hint for an unknown name: the nearest known name, or all known names."""
    near = difflib.get_close_matches(name.lower(), known, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"known are {', '.join(known)}" if known else "there is none"


def nearest(path: str | os.PathLike[str], suffix: str = "") -> str:
    """Return a sentence with the paths nearest to a missing path, or to a glob without matches.

    Suggested files have the `suffix`; the given path may lack it.
    """
    missing = place = Path(path)
    while not missing.parent.is_dir():
        missing = missing.parent
    names = [
        one.name
        for one in os.scandir(missing.parent)
        if one.name != missing.name and (one.is_dir() or one.name.endswith(suffix))
    ]
    forgotten = f"{missing.name}{suffix}"
    near = [forgotten] if suffix and forgotten in names else []
    near = near or difflib.get_close_matches(missing.name, names, n=SHOWN)
    if near:
        return f" Did you mean {' or '.join(repr(str(missing.parent / name)) for name in near)}?"
    if missing != place and WILDCARDS.isdisjoint(missing.name):
        return f" There is no {missing.name!r} in {missing.parent.absolute()}."
    return ""
