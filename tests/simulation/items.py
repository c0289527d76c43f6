"""What the items of mini-batches do to `run`, and which of them may be missing at the end."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Self

from daskprs._core.bisection import most_failed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daskprs._core.pieces import FailedItems

GOOD, RAISES, DIES, HANGS, POISONS = "good", "raises", "dies", "hangs", "poisons"
OF_STAGES = {f"a stage {what}": what for what in (RAISES, DIES, HANGS, POISONS)}
"""What a mini-batch does in a process of its own, beside that of `run`."""
REFUSED = "is refused"
"""The endpoint refuses each request of the mini-batch."""
NEEDS_MEMORY, SLOW, NAMED = "needs memory", "is slow", "is named"
"""No memory is enough; it takes `SLOW_S`, and passes; the script names it by `context.fail`."""
ENDS_A_CALL = (RAISES, DIES, HANGS, POISONS, NEEDS_MEMORY)
LACKS_MEMORY = "lacks memory"
"""Ends a call that gets too many items, whatever they are."""
SLOW_S = 3.0
"""Seconds that a slow item takes: more than a piece may take, and less than a mini-batch may."""
STATUS = {
    RAISES: ("RUN_EXCEPTION",),
    POISONS: ("RUN_EXCEPTION",),
    DIES: ("PROCESS_DIED",),
    HANGS: ("RUN_TIMEOUT",),
    NEEDS_MEMORY: ("RUN_EXCEPTION", "PROCESS_DIED"),
    NAMED: ("NAMED",),
}
"""How the attempt has ended that has found such an item."""
AS_A_RULE = 2
"""Calls that an item ends which the search finds, although it passes later."""


class Called(NamedTuple):
    """What a call of `run` comes to."""

    what: str
    item: int = 0
    """The item that ends it."""
    slow_s: float = 0.0
    """Seconds that slow items take until then."""
    named: tuple[int, ...] = ()


def reason(index: int, item: int) -> str:
    """Return what the script says of an item that is bad."""
    return f"item {item} of mini-batch {index} is bad"


@dataclass(frozen=True)
class Items:
    """The items of a job."""

    on_error: str
    """``raise``, ``isolate`` or ``null``."""
    sizes: tuple[int, ...]
    """Number of items of each mini-batch; 0 for an empty range."""
    is_known: bool
    """Whether the plan knows these numbers."""
    acts: dict[tuple[int, int], tuple[str, ...]] = field(default_factory=dict)
    """What an item, by mini-batch and number, does to one call after the other that it ends; the
    last one for ever."""
    most_rows: int | None = None
    """Largest number of items in a call for which the memory is enough."""
    heavy: frozenset[int] = frozenset()
    """The mini-batches of which this is true."""
    kills: bool = False
    """Whether want of memory ends the process."""
    is_dependent: bool = False
    """Whether `run` returns other rows for a part of the items than for all of them."""

    @property
    def isolates(self) -> bool:
        """Whether mini-batches that fail are searched."""
        return self.on_error != "raise"

    def mended(self) -> Self:
        """Return the items for a script that never fails."""
        return replace(self, acts={}, most_rows=None)

    @cached_property
    def _by_index(self) -> dict[int, list[tuple[int, tuple[str, ...]]]]:
        found: dict[int, list[tuple[int, tuple[str, ...]]]] = {}
        for (index, item), acts in sorted(self.acts.items()):
            found.setdefault(index, []).append((item, acts))
        return found

    def acts_of(self, index: int) -> list[tuple[int, tuple[str, ...]]]:
        """Return the items of a mini-batch that do anything, in order."""
        return self._by_index.get(index, [])

    def lacks_memory(self, index: int, count: int) -> bool:
        """Return whether so many items of a mini-batch are too many for a call."""
        return self.most_rows is not None and index in self.heavy and count > self.most_rows

    def called(
        self, caused: dict[tuple[int, int], int], index: int, numbers: Sequence[int]
    ) -> Called:
        """Return what a call for some items comes to, and count which item has ended it."""
        if self.lacks_memory(index, len(numbers)):
            return Called(LACKS_MEMORY)
        slow_s, named = 0.0, []
        for item, acts in self.acts_of(index):
            if item not in numbers:
                continue
            count = caused.get((index, item), 0)
            what = acts[min(count, len(acts) - 1)]
            if what in ENDS_A_CALL:
                caused[index, item] = count + 1
                return Called(what, item, slow_s)
            slow_s += SLOW_S if what == SLOW else 0.0
            if what == NAMED:
                named.append(item)
        return Called(GOOD, 0, slow_s, tuple(named))

    # ---- what must hold ----

    def ends_calls(self, index: int) -> bool:
        """Return whether an item of a mini-batch ends a call, for ever or some times."""
        return any(acts[0] in ENDS_A_CALL for _, acts in self.acts_of(index))

    def bad(self, index: int) -> set[int]:
        """Return the items that have no rows, however often they run."""
        return {item for item, acts in self.acts_of(index) if acts[-1] in STATUS}

    def fails_for_ever(self, index: int, *, is_independent: bool) -> bool:
        """Return whether a mini-batch fails in each attempt, as a whole or in halves."""
        if not is_independent and self.lacks_memory(index, self.sizes[index]):
            return True
        return any(acts[-1] in ENDS_A_CALL for _, acts in self.acts_of(index))

    def objection(
        self, index: int, listed: Sequence[FailedItems], tries: int, *, is_complete: bool = True
    ) -> str:
        """Return why these items of a committed mini-batch may not be those that are left out.

        Parameters
        ----------
        index
            Number of the mini-batch.
        listed
            The items that are left out.
        tries
            Number of attempts that a mini-batch has.
        is_complete
            Whether all bad items have to be among them.

        """
        acts = dict(self.acts_of(index))
        numbers = [number for one in listed for number in range(one.start, one.stop)]
        if numbers != sorted(set(numbers)) or not set(numbers) <= {*range(self.sizes[index])}:
            return f"{index} lists {numbers}"
        missing = self.bad(index) - {*numbers}
        if is_complete and missing:
            return f"{index} is committed with rows of {missing}, which are bad"
        most = most_failed(self.sizes[index])
        for one in listed:
            found = len(numbers) - (one.stop - one.start)
            if one.stop - one.start == 1 and one.start in acts:
                if why := self._against_one(
                    index, one, acts[one.start], tries, is_rest=found >= most
                ):
                    return why
            elif found < most or not self._may_fail(index, one.start, one.stop):
                return f"{index} lists {tuple(one[:3])}, where nothing is bad"
        return ""

    def _against_one(
        self, index: int, one: FailedItems, acts: tuple[str, ...], tries: int, *, is_rest: bool
    ) -> str:
        """Return why an item may not be listed alone."""
        if acts[-1] not in STATUS:
            # It passes later. It is found if it has failed alone as often as the rule says.
            ends = len(acts) - 1 if acts[0] in ENDS_A_CALL else 0
            is_found = ends >= AS_A_RULE or (ends and tries == 1) or is_rest
            return "" if is_found else f"{index} lists the good item {one.start}: {one.message}"
        if one.status not in STATUS[acts[-1]]:
            return f"{index} lists {one.start} with {one.status}, and it {acts[-1]}"
        says = acts[-1] in (RAISES, POISONS, NAMED)
        if says and one.message != reason(index, one.start):
            return f"{index} lists {one.start} with the cause {one.message!r}"
        return ""

    def _may_fail(self, index: int, start: int, stop: int) -> bool:
        """Return whether a call for a range may fail, or may take too long for a piece."""
        has_item = any(start <= item < stop for item, _ in self.acts_of(index))
        return has_item or self.lacks_memory(index, stop - start)
