"""What an earlier run of a job has settled, as the ledger sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from daskprs._core.pieces import Range


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
    """The ranges of these items if just they are to be run again."""
    returned: int = 0
    """Number of rows that `run` returned for all others then."""


class CarriedOverFailure(NamedTuple):
    """A mini-batch that failed in an earlier run and is not retried in this one."""

    items: int
