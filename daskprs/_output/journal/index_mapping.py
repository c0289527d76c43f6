"""Find settled mini-batches, by content, in a plan whose numbers have shifted."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from daskprs._output.journal.commits import digest_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from daskprs._core.mini_batch import MiniBatch
    from daskprs._output.journal.commits import Numbers

T = TypeVar("T")


class IndexMapping(NamedTuple):
    """The numbers of mini-batches in the old plan and in the current one, sorted by the old."""

    before: Numbers
    now: Numbers
    of_plan: int
    """Number of mini-batches in the current plan."""

    @property
    def left(self) -> int:
        """Number of mini-batches in the current plan that are not settled."""
        return self.of_plan - len(self.now)

    def changes(self, settled: int) -> bool:
        """Say whether any of the `settled` mini-batches has another number now, or is gone."""
        return len(self.before) != settled or not np.array_equal(self.before, self.now)

    def of(self, indexes: Numbers) -> tuple[Numbers, Numbers]:
        """Return a mask of the numbers that are still in the plan, and their new numbers."""
        places = np.searchsorted(self.before, indexes)
        there = places < len(self.before)
        there[there] = self.before[places[there]] == indexes[there]
        return there, self.now[places[there]]

    def moved(self, by_index: dict[int, T]) -> dict[int, T]:
        """Return values by their new numbers, without those no longer in the plan."""
        new = dict(zip(self.before.tolist(), self.now.tolist(), strict=True))
        return {new[index]: value for index, value in by_index.items() if index in new}


def index_mapping(indexes: Numbers, digests: Numbers, plan: Iterable[MiniBatch]) -> IndexMapping:
    """Return the numbers in a plan of settled mini-batches, given by number and digest of identity.

    Mini-batches with the same content are matched in their order, which is as good as any. If all
    stand in their old places, they stay there.
    """
    wanted = np.array(array("Q", (digest_of(one.identity) for one in plan)))
    have, open_ = np.argsort(indexes, kind="stable"), np.arange(len(wanted))
    if indexes.max(initial=0) < len(wanted) and np.array_equal(wanted[indexes], digests):
        same = indexes[have].astype(np.uint32)
        return IndexMapping(same, same, len(wanted))
    before, now = [], []
    while True:
        _, mine, theirs = np.intersect1d(digests[have], wanted[open_], return_indices=True)
        if len(mine) == 0:
            break
        before.append(indexes[have[mine]])
        now.append(open_[theirs])
        have, open_ = np.delete(have, mine), np.delete(open_, theirs)
    old, new = (np.concatenate([*parts, np.empty(0, np.uint32)]) for parts in (before, now))
    order = np.argsort(old, kind="stable")
    return IndexMapping(old[order].astype(np.uint32), new[order].astype(np.uint32), len(wanted))
