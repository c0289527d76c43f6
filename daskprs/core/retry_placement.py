"""Where a mini-batch that has failed is tried again: on another node if there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from daskprs.core.actions import SlotId
    from daskprs.core.entry import Entry, InFlightLease

ELSEWHERE_S = 30.0
"""So long it waits for a slot on another node, then for none: where all of them are at something
that takes hours, a free slot is better than a better one."""
CHOICES = 3
"""Rounds in which free slots are filled; in each a slot takes what it left to others before."""


class RetryPlacement:
    """Says what a slot leaves to others.

    Parameters
    ----------
    usable
        All slots that are used.
    flights
        What is out just now.
    now_s
        The time.

    """

    def __init__(
        self, usable: Collection[SlotId], flights: Mapping[int, InFlightLease], now_s: float
    ) -> None:
        self.slots = len(usable)
        self._flights = flights
        self._nodes = {slot.node for slot in usable}
        self._now_s = now_s

    def skips(self, entry: Entry, slot: SlotId, choice: int) -> bool:
        """Say whether a slot leaves an entry to others, in one of the rounds."""
        if entry.of_lost_worker and self._beside_another(slot):
            return True
        if not entry.failed_on:
            return False
        if self._other_node(entry, slot) and (choice == 0 or self._now_s < entry.elsewhere_until_s):
            return True
        return choice < CHOICES - 1 and self.slots > 1 and entry.failed_on[-1] == slot

    def _beside_another(self, slot: SlotId) -> bool:
        """Say whether one that was at work on a lost worker is at work on this one."""
        return any(
            flight.slot.worker == slot.worker and flight.of_lost_worker
            for flight in self._flights.values()
        )

    def _other_node(self, entry: Entry, slot: SlotId) -> bool:
        """Say whether it has failed on this node, and there is one where it has not."""
        nodes = {failed.node for failed in entry.failed_on}
        return slot.node in nodes and not self._nodes <= nodes
