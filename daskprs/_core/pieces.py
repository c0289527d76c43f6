"""Pieces of a mini-batch: what one attempt runs where it does not run all items at once.

A piece is a range of consecutive items, rows or files, and gets a call of `run` of its own.
"""

from __future__ import annotations

from typing import NamedTuple

Range = tuple[int, int]
"""First item of a mini-batch, counted from 0, and the item after the last."""


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
    columns: tuple[str, ...] | None = None
    """The columns of what `run` returned for others, for rows of nulls; None: they are unknown."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to run: all items have failed by themselves."""
        return self.ranges == ()


class PiecesEnd(NamedTuple):
    """The end of an attempt at pieces."""

    failed_at: int = 0
    """Position of the first range that failed; without a meaning after a success. In a trial, the
    range that ended the process: if it is not the first, the first one had failed before."""
    passed_before: bool = False
    """Whether a range has passed in this attempt before one failed."""
    passed_after: bool = False
    """Whether a range has passed in this attempt after one failed."""
    is_independent: bool | None = None
    """Whether the items were found to be independent of each other; None if that was not tried."""


class FailedRows(NamedTuple):
    """The failed items of a mini-batch that is committed without them."""

    items: tuple[FailedItems, ...]
    rows: bytes = b""
    """The input's columns of these items, in order, as an Arrow stream; empty if they are too
    large, or unknown."""

    @property
    def count(self) -> int:  # type: ignore[override] # tuple.count is of no use here
        """Number of the items."""
        return sum(one.stop - one.start for one in self.items)
