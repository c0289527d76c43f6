"""The choice of slots for retries: on another node if there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from daskprs.core.actions import SlotId
    from daskprs.core.entry import Entry, InFlightLease

ELSEWHERE_S = 30.0
"""Seconds after a failure in which a retry avoids nodes where it has failed. Then any free slot
will do: the other nodes may be busy for hours."""
CHOICES = 3
"""Rounds in which free slots are filled. Each round skips fewer mini-batches than the last."""


class RetryPlacement:
    """Decides which mini-batches a free slot skips, so that a better slot runs them.

    A slot skips a mini-batch of a lost worker in every round, while another one of a lost worker
    runs beside it. It skips a mini-batch that failed on its node in the first round, and for
    `ELSEWHERE_S` in the others. It skips one that failed in the slot itself, except in the last.

    Parameters
    ----------
    usable
        The slots that may get work.
    flights
        The leases in flight, by id.
    now_s
        Seconds of the ledger's clock.

    """

    def __init__(
        self, usable: Collection[SlotId], flights: Mapping[int, InFlightLease], now_s: float
    ) -> None:
        self.slots = len(usable)
        self._flights = flights
        self._nodes = {slot.node for slot in usable}
        self._now_s = now_s

    def skips(self, entry: Entry, slot: SlotId, choice: int) -> bool:
        """Say whether a slot skips an entry in a round, counted from 0."""
        if entry.of_lost_worker and self._beside_another(slot):
            return True
        if not entry.failed_on:
            return False
        if self._other_node(entry, slot) and (choice == 0 or self._now_s < entry.elsewhere_until_s):
            return True
        return choice < CHOICES - 1 and self.slots > 1 and entry.failed_on[-1] == slot

    def _beside_another(self, slot: SlotId) -> bool:
        """Say whether a mini-batch of a lost worker runs on the same worker now."""
        return any(
            flight.slot.worker == slot.worker and flight.of_lost_worker
            for flight in self._flights.values()
        )

    def _other_node(self, entry: Entry, slot: SlotId) -> bool:
        """Say whether it has failed on this node, and there is one where it has not."""
        nodes = {failed.node for failed in entry.failed_on}
        return slot.node in nodes and not self._nodes <= nodes
