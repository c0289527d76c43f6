"""What is settled already, found again in a plan whose numbers have shifted: by content."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from daskprs.output.journal.commits import digest_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from daskprs.core.mini_batch import MiniBatch
    from daskprs.output.journal.int_column import Numbers


class Renumbering(NamedTuple):
    """The numbers of mini-batches in the plan before and in the one now, sorted by the former."""

    before: Numbers
    now: Numbers
    of_plan: int
    """How many mini-batches the plan has now."""

    @property
    def left(self) -> int:
        """How many of them are not settled."""
        return self.of_plan - len(self.now)

    def changes(self, settled: int) -> bool:
        """Say whether any of so many mini-batches that were settled has another number, or none."""
        return len(self.before) != settled or not np.array_equal(self.before, self.now)

    def of(self, indexes: Numbers) -> tuple[Numbers, Numbers]:
        """Return which numbers are in the plan yet, as a mask, and what those are now."""
        places = np.searchsorted(self.before, indexes)
        there = places < len(self.before)
        there[there] = self.before[places[there]] == indexes[there]
        return there, self.now[places[there]]


def renumbered(indexes: Numbers, digests: Numbers, plan: Iterable[MiniBatch]) -> Renumbering:
    """Return where mini-batches stand in a plan.

    Where several are the same by content they are taken in their order, which is as good as any;
    where all stand in their old places they stay there.

    Parameters
    ----------
    indexes, digests
        Number and digest of the identity of each mini-batch that is settled.
    plan
        All mini-batches, numbered from 0.

    """
    wanted = np.array(array("Q", (digest_of(one.identity) for one in plan)))
    have, open_ = np.argsort(indexes, kind="stable"), np.arange(len(wanted))
    if indexes.max(initial=0) < len(wanted) and np.array_equal(wanted[indexes], digests):
        same = indexes[have].astype(np.uint32)
        return Renumbering(same, same, len(wanted))
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
    return Renumbering(old[order].astype(np.uint32), new[order].astype(np.uint32), len(wanted))
