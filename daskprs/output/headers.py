"""The one header of a job: what the frames of all mini-batches must agree on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from daskprs.errors import OutputError

if TYPE_CHECKING:
    from daskprs.output.commits import CommitTable


class Headers:
    """Remembers the header of the first mini-batch that came with one."""

    def __init__(self, first: str | None = None, index: int = 0) -> None:
        self._first = first
        self._index = index

    @classmethod
    def of(cls, commits: CommitTable) -> Headers:
        """Return what the commits of earlier epochs have agreed on."""
        numbers = commits.column("header")
        named = np.flatnonzero(numbers)
        if len(named) == 0:
            return cls()
        row = int(named[0])
        return cls(commits.header(int(numbers[row])), int(commits.column("index")[row]))

    def check(self, header: str | None, index: int) -> None:
        """Compare the header of a mini-batch that has rows.

        Raises
        ------
        OutputError
            When it is not that of the others: both are named.

        """
        if header is None or header == self._first:
            return
        if self._first is not None:
            msg = (
                f"mini-batches {self._index} and {index} returned frames with different headers: "
                f"{self._first.rstrip()!r} and {header.rstrip()!r}. Return the same columns from "
                "each run(), or leave append_row_dataframe_header off."
            )
            raise OutputError(msg)
        self._first, self._index = header, index
