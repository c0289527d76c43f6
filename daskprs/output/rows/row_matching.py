"""Match each returned row with a row of the input, decided for a result as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from daskprs.output.rows.typed_rows import NO_INDEX

if TYPE_CHECKING:
    from daskprs.output.rows.typed_rows import RowNumbers, TypedPiece

Numbers = npt.NDArray[np.int64]


class RowMatcher:
    """Matches returned rows with rows of the input.

    A mini-batch of n rows fits by position if it returned n rows without an index, or a frame of
    n rows with the index 0 to n - 1. Another frame fits through its index, if that is unnamed and
    holds different numbers out of 0 to n - 1. If each shorter frame has the index 0 to m - 1, the
    index does not show which rows are left: `reset_index` after a filter makes the same.

    Parameters
    ----------
    bounds
        The first row of each mini-batch in the plan, and the end.

    """

    def __init__(self, bounds: Numbers) -> None:
        self.misfit = ""
        """Why returned rows cannot be matched; empty where they can."""
        self._bounds = bounds
        self._mini_batch = -1
        self._count = 0
        self._indexes: list[RowNumbers] = []
        self._places: list[Numbers] = []
        self._first_unclear: int | None = None
        self._is_clear = False

    def add(self, mini_batch: int, piece: TypedPiece) -> None:
        """Take the next piece of a result; the pieces of a mini-batch follow one another."""
        if mini_batch != self._mini_batch:
            self._close()
            self._mini_batch = mini_batch
        length = 1 if piece.kind == "element" else len(piece.value)
        self._count += length
        if length and piece.kind == "frame":
            self._indexes.append(piece.numbers)

    def finish(self) -> Numbers | None:
        """Return the place of each row in the plan; None if rows cannot be matched."""
        self._close()
        if self._first_unclear is not None and not self._is_clear:
            self._refuse(
                f"each frame with fewer rows than its mini-batch (the first is that of mini-batch "
                f"{self._first_unclear}) has the index 0, 1, … as after reset_index, which does "
                "not say which rows are left"
            )
        if self.misfit:
            return None
        return np.concatenate([np.empty(0, np.int64), *self._places])

    def _close(self) -> None:
        """Match the rows of the mini-batch whose pieces have been taken."""
        count, indexes = self._count, self._indexes
        self._count, self._indexes = 0, []
        if not count or self.misfit:
            return
        if self._mini_batch + 1 >= len(self._bounds):
            self._refuse(f"the input has no mini-batch {self._mini_batch}")
            return
        first, stop = self._bounds[self._mini_batch : self._mini_batch + 2].tolist()
        total = stop - first
        if not indexes or any(isinstance(one, str) and one == NO_INDEX for one in indexes):
            self._match_by_position(first, count, total)
        else:
            self._match_by_index(first, count, total, indexes)

    def _match_by_position(self, first: int, count: int, total: int) -> None:
        if count == total:
            self._places.append(np.arange(first, first + total))
        else:
            self._refuse(
                f"mini-batch {self._mini_batch} has {total} rows, and its result {count} without "
                "an index"
            )

    def _match_by_index(
        self, first: int, count: int, total: int, indexes: list[RowNumbers]
    ) -> None:
        numbers = _joined(indexes)
        if numbers is None or not _are_rows(numbers, total):
            earlier = " (earlier versions of daskprs kept no index)" if numbers is None else ""
            self._refuse(
                f"the index of the {count} rows from mini-batch {self._mini_batch} does not say "
                f"which rows they are, as an index without a name and with different numbers out "
                f"of 0 to {total - 1} would{earlier}"
            )
            return
        if count < total:
            if not np.array_equal(numbers, np.arange(count)):
                self._is_clear = True
            elif self._first_unclear is None:
                self._first_unclear = self._mini_batch
        self._places.append(numbers + first)

    def _refuse(self, why: str) -> None:
        self.misfit = self.misfit or why
        self._places = []


def _joined(indexes: list[RowNumbers]) -> Numbers | None:
    """Return the row numbers of all pieces; None if an index does not hold row numbers."""
    arrays = []
    for one in indexes:
        if isinstance(one, str):
            return None
        arrays.append(np.asarray(one, np.int64))
    return np.concatenate(arrays)


def _are_rows(numbers: Numbers, total: int) -> bool:
    """Say whether the numbers are those of different rows out of `total`."""
    if numbers.min() < 0 or numbers.max() >= total:
        return False
    seen = np.zeros(total, dtype=bool)
    seen[numbers] = True
    return int(np.count_nonzero(seen)) == len(numbers)
