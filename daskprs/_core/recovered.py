"""What an earlier run of a job has settled, as the ledger sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from daskprs._core.pieces import Range


class Recovered(Protocol):
    """The commit of an earlier run of the job for a mini-batch."""

    @property
    def total(self) -> int:
        """Number of items in the mini-batch."""

    @property
    def succeeded(self) -> int:
        """Number of items that succeeded."""

    @property
    def empty(self) -> bool:
        """True for a range in which no row starts."""

    @property
    def alone(self) -> int:
        """Number of items that failed by themselves."""

    @property
    def gaps(self) -> tuple[Range, ...]:
        """The ranges of these items if just they are to be run again."""

    @property
    def returned(self) -> int:
        """Number of rows that `run` returned for all others then."""


class CarriedOverFailure(NamedTuple):
    """A mini-batch that failed in an earlier run and is not retried in this one."""

    items: int
