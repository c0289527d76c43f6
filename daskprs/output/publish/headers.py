"""The one header of a job, on which the frames of all mini-batches must agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from daskprs.errors import OutputError

if TYPE_CHECKING:
    from daskprs.core.columnar import ColumnBatch
    from daskprs.core.outcomes import Outcome
    from daskprs.output.journal.commits import CommitTable


class Headers:
    """Remembers the header of the first mini-batch that came with one."""

    def __init__(self, first: str | None = None, index: int = 0) -> None:
        self.first = first
        """The header; None before the first one."""
        self._index = index

    @classmethod
    def of(cls, commits: CommitTable) -> Headers:
        """Return the headers of a job, with the one from the commits of earlier epochs."""
        numbers = commits.column("header")
        named = np.flatnonzero(numbers)
        if len(named) == 0:
            return cls()
        row = int(named[0])
        return cls(commits.header(int(numbers[row])), int(commits.column("index")[row]))

    def checked(self, outcomes: ColumnBatch[Outcome]) -> list[str | None] | None:
        """Return the headers of mini-batches that have rows; None without any header.

        Raises
        ------
        OutputError
            When headers differ; the error names both.

        """
        if not any(outcomes.column("header")):
            return None
        return [self._checked(outcome) for outcome in outcomes]

    def _checked(self, outcome: Outcome) -> str | None:
        header, index = outcome.header, outcome.index
        if header is None or outcome.text is None or outcome.text.length == 0:
            return None
        if self.first is None:
            self.first, self._index = header, index
        if header != self.first:
            msg = (
                f"mini-batches {self._index} and {index} returned frames with different headers: "
                f"{self.first.rstrip()!r} and {header.rstrip()!r}. Return the same columns from "
                "each run(), or leave append_row_dataframe_header off."
            )
            raise OutputError(msg)
        return header
