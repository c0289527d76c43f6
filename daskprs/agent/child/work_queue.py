"""One order of an agent: mini-batches by position, to be done one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daskprs.agent.protocol.shared_page import NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from daskprs.core.mini_batch import Assigned


class Order:
    """The mini-batches given to an agent, and its progress; more may come at any time.

    Parameters
    ----------
    lease_id
        The order's number between supervisor and agent.
    prefetch
        Whether the next mini-batch may be loaded while one runs.

    """

    def __init__(self, lease_id: int, *, prefetch: bool) -> None:
        self.lease_id = lease_id
        self.prefetch = prefetch
        self.position = 0
        """The position of the current or next mini-batch."""
        self.begun = NOTHING
        """The last position claimed for good, which no recall takes back."""
        self._work: dict[int, Assigned] = {}
        self._beyond = 0

    def add(self, work: Iterable[Assigned]) -> None:
        """Append work."""
        for assigned in work:
            self._work[self._beyond] = assigned
            self._beyond += 1

    def drop_beyond(self, last: int) -> None:
        """Drop the recalled work beyond a position; new work takes its place."""
        while self._beyond > last + 1:
            self._beyond -= 1
            del self._work[self._beyond]

    def has(self, position: int) -> bool:
        """Say whether there is something to do at a position."""
        return position in self._work

    def at(self, position: int) -> Assigned:
        """Return the mini-batch at a position."""
        return self._work[position]

    def next(self) -> None:
        """Turn to the next position."""
        del self._work[self.position]
        self.position += 1
