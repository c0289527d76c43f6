"""Pieces of a mini-batch: what one attempt runs where it does not run all items at once.

A piece is a range of consecutive items, rows or files, and gets a call of `run` of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

Range = tuple[int, int]
"""First item of a mini-batch, counted from 0, and the item after the last."""
NAMED = "NAMED"
"""The status of an item that the script itself has named as failed."""
Place = tuple[int, int, int]
"""A place in the rows of a mini-batch: bytes of text, bytes of typed rows, and rows before it."""


def size_of(range_: Range) -> int:
    """Return the number of items in a range."""
    return range_[1] - range_[0]


class FailedItems(NamedTuple):
    """Consecutive items of a mini-batch that have failed by themselves."""

    start: int
    stop: int
    status: str
    """How the attempt at them has ended: ``RUN_EXCEPTION``, ``RUN_TIMEOUT``, …"""
    kind: str
    """The class of the exception, or a status if there was none."""
    message: str
    traceback: str
    attempts: int
    """Number of attempts at the mini-batch until then."""
    host: str = ""
    process: str = ""
    cut: tuple[Place, Place] | None = None
    """Where the rows of these items would stand among those of the mini-batch: at the first place,
    up to the second, rows of nulls between them. None where that is not known."""


class Gap(NamedTuple):
    """Consecutive items of a committed mini-batch that have failed, all that are beside others."""

    start: int
    stop: int
    before: Place
    """Where their rows would begin, …"""
    after: Place
    """… and end."""


def gaps_of(items: Iterable[FailedItems]) -> list[Gap]:
    """Return where items, in order, are missing; nothing if that is not known of all of them."""
    gaps: list[Gap] = []
    for one in items:
        if one.cut is None:
            return []
        before, after = one.cut
        start = one.start
        if gaps and gaps[-1].stop == start:
            start, _, before, _ = gaps.pop()
        gaps.append(Gap(start, one.stop, before, after))
    return gaps


class Recovered(NamedTuple):
    """The commit of an earlier run of the job for a mini-batch."""

    total: int
    """Number of items in the mini-batch."""
    succeeded: int
    """Number of items that succeeded."""
    empty: bool = False
    """True for a range in which no row starts."""
    alone: int = 0
    """Number of items that failed by themselves."""
    gaps: tuple[Range, ...] = ()
    """The ranges of these items, in order, if just they are to be run again."""
    returned: int = 0
    """Number of rows that `run` returned for all others then."""

    @property
    def ranges(self) -> tuple[Range, ...]:
        """The ranges of all others, which are kept."""
        edges = [0, *(edge for gap in self.gaps for edge in gap), self.total]
        pairs = zip(edges[::2], edges[1::2], strict=True)
        return tuple((start, stop) for start, stop in pairs if start < stop)


class CarriedOverFailure(NamedTuple):
    """A mini-batch that failed in an earlier run and is not retried in this one."""

    items: int


class Pieces(NamedTuple):
    """The pieces of one attempt."""

    ranges: tuple[Range, ...] | None = None
    """The ranges to run, in order; None: all items are one range."""
    at_most: int | None = None
    """Largest number of items of a call; None: a range gets one call."""
    is_trial: bool = False
    """Whether the attempt only finds out whether the first range fails; its rows are dropped. The
    others run only after that, until one of them passes: it shows that the process is whole."""
    checks: bool = False
    """Whether the attempt finds out whether the items are independent of each other."""
    failed: tuple[FailedItems, ...] = ()
    """The items that are left out, in order."""
    timeout_s: float | None = None
    """Seconds that a call may take, where that is less than the timeout of `run`."""
    kept: Recovered | None = None
    """What is kept of an earlier run; None: all items run, or are left out."""
    columns: tuple[str, ...] | None = None
    """The columns of what `run` returned for others, for rows of nulls; None: they are unknown."""

    def checks_at(self, position: int) -> bool:
        """Return whether that is behind all ranges, where items are compared that have passed."""
        return self.checks and bool(self.ranges) and position == len(self.ranges or ())

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to run: all items have failed by themselves."""
        return self.ranges == ()


class PiecesEnd(NamedTuple):
    """The end of an attempt at pieces."""

    failed_at: int = 0
    """Position of the first range that failed; without a meaning after a success. In a trial, the
    range that ended the process: if it is not the first, the first one had failed before. The
    number of all ranges: the process has ended while items were compared that had passed."""
    passed_before: bool = False
    """Whether a range has passed in this attempt before one failed."""
    passed_after: bool = False
    """Whether a range has passed in this attempt after one failed."""
    is_independent: bool | None = None
    """Whether the items were found to be independent of each other; None if that was not tried."""
    edges: tuple[Place, ...] = ()
    """The places behind the rows of each gap, where those of an earlier run are kept around it."""


class FailedRows(NamedTuple):
    """The failed items of a mini-batch that is committed without them."""

    items: tuple[FailedItems, ...]
    rows: bytes = b""
    """The input's columns of these items, in order, as an Arrow stream; empty if they are too
    large, or unknown."""
    returned: int = 0
    """Number of the rows that `run` returned for all others, however many."""

    @property
    def count(self) -> int:  # type: ignore[override] # tuple.count is of no use here
        """Number of the items."""
        return sum(one.stop - one.start for one in self.items)
