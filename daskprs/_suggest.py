"""Suggestions for names and paths that do not exist."""

from __future__ import annotations

import difflib
import os
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

T = TypeVar("T")

WILDCARDS = frozenset("*?[")
SHOWN = 3


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a sentence with the nearest known name, for the end of a message; empty without."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    longer = [one for one in names if one.startswith(f"{name}_")]
    near = near or (longer if len(longer) == 1 else [])
    return f" Did you mean {near[0]}?" if near else ""


def refuses_unknown(refusal: Callable[[str], Exception]) -> Callable[[type[T]], type[T]]:
    """Let a dataclass refuse unknown keywords by an error that may name the nearest known one."""

    def refusing(cls: type[T]) -> type[T]:
        plain = cls.__init__
        names = signature(cls).parameters.keys()

        @wraps(plain)
        def __init__(self: T, *args: Any, **given: Any) -> None:  # noqa: N807 - it is that of the class
            for name in given.keys() - names:
                raise refusal(name)
            plain(self, *args, **given)

        cls.__init__ = __init__  # type: ignore[assignment]
        return cls

    return refusing


def nearest_of(name: str, known: Sequence[str]) -> str:
    """Return a hint for an unknown name: the nearest known name, or all known names."""
    near = difflib.get_close_matches(name.lower(), known, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"known are {', '.join(known)}" if known else "there is none"


def nearest(path: str | os.PathLike[str], suffix: str = "", root: Path | None = None) -> str:
    """Return a sentence with the paths nearest to a missing path, or to a glob without matches.

    Suggested files have the `suffix`; the given path may lack it. With a `root`, a relative path is
    one in this folder.
    """
    missing = place = Path(path) if root is None else root / path
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
        places = [missing.parent / name for name in near]
        if root is not None and not Path(path).is_absolute():
            places = [Path(os.path.relpath(one, root)) for one in places]
        return f" Did you mean {' or '.join(repr(str(one)) for one in places)}?"
    if missing != place and WILDCARDS.isdisjoint(missing.name):
        return f" There is no {missing.name!r} in {missing.parent.absolute()}."
    return ""
