"""The usage of a job, by its script's own count."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from daskprs._core.spending import plain

if TYPE_CHECKING:
    from daskprs._core.spending import Amounts


class Usage(NamedTuple):
    """What a job has used by its script's own count: amounts by name."""

    spent: dict[str, float] = {}  # noqa: RUF012 - a default, which is never changed
    """What all attempts have used, also failed ones and those of processes that died."""
    useful: dict[str, float] = {}  # noqa: RUF012 - as above
    """What the attempts have used whose rows are in the result."""

    @classmethod
    def of(cls, spent: Amounts, useful: Amounts) -> Usage:
        """Return amounts, whole numbers where they are ones."""
        return cls(*({name: plain(amount) for name, amount in one} for one in (spent, useful)))

    def text(self, name: str) -> str:
        """Return what was spent under a name, and how much of it was useful if not all was."""
        spent, useful = self.spent[name], self.useful.get(name, 0)
        more = "" if useful == spent else f", {useful:,} of them for what is in the result"
        return f"{spent:,} {name}{more}"
