"""Texts that no message, log or traceback shows: `repr` has their names alone."""

from __future__ import annotations


class HiddenValues(dict[str, str]):
    """A dict of texts whose `repr` shows the names, and the types of values other than text."""

    def __repr__(self) -> str:
        shown = ("***" if isinstance(one, str) else type(one).__name__ for one in self.values())
        return repr(dict(zip(self, shown, strict=True)))
