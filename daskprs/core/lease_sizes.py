"""How many mini-batches a slot has in hand: some seconds' worth, and fewer toward the end."""

from __future__ import annotations

from dataclasses import dataclass

IN_HAND_S = 2.0
"""So much work a slot should have: it tells about once a second what it has done, and is to have
its next work, and to load it ahead, before it is through with the last."""
RETURN_AFTER_S = 1.0
"""What has finished is handed back so long after the first of it came, whatever else goes on …"""
SLOTS_A_SECOND = 100
"""… and later where there are many slots: each return costs Dask and the driver milliseconds, and
so many a second keep them half busy."""
SMALLEST_S = 0.02
"""Toward the end leases shrink to this and no further: a task costs more than less would save …"""
SHARE_OF_RETURN = 4
"""… and where there are many slots, to this part of the time in which all of them return."""
AT_LEAST = 3
"""One runs, one is loaded meanwhile, and one is known when the first is done. The last is left
out where one takes longer than all that: it would be taken back before its turn, and there is time
enough to hear of it while another one runs."""
GROWTH = 4
"""A slot has at most so many times more than the most that came back together …"""
SAMPLES = 10
"""… or a part of all that have come back: what so many took is no accident."""
LARGEST = 10_000
IN_ALL = 100_000
"""All slots together have no more: the driver knows each one that is out, half a kilobyte of it."""
TO_THE_END_S = 0.1
"""A lease goes on for so long, or less, to the end of what is loaded at the price of one."""
UNKNOWN = 100
"""So many mini-batches are thought to be left where nobody knows, …"""
UNKNOWN_S = 0.5
"""… and so long one is thought to take until one was heard of."""
MEMORY = 0.7
"""What an older lease counts beside the next newer one."""


@dataclass(slots=True)
class LeaseSizes:
    """Learns from what comes back how long a mini-batch takes."""

    seconds: float = 0.0
    """Spent on mini-batches, those long ago counted less."""
    count: float = 0.0
    """So many mini-batches took them."""
    largest_yet: int = 1
    seen: int = 0

    def work_s(self, count: int) -> float:
        """Return about how long so many mini-batches take."""
        return count * (self.seconds / self.count if self.count else UNKNOWN_S)

    def to_the_end(self, size: int, slots: int) -> int:
        """Return how many more a lease of this size may have, to end where a load group does."""
        if self.seconds <= 0:
            return 0
        return int(max(0, min(self._most(slots) - size, TO_THE_END_S * self.count / self.seconds)))

    def learn(self, count: int, seconds: float) -> None:
        """Take note of a lease: so many mini-batches in so many seconds."""
        if count > 0:
            self.seconds = MEMORY * self.seconds + seconds
            self.count = MEMORY * self.count + count
            self.largest_yet = max(self.largest_yet, count)
            self.seen += count

    def return_after_s(self, slots: int) -> float:
        """Return how long the first result of a lease may wait for others to come back with."""
        return max(RETURN_AFTER_S, slots / SLOTS_A_SECOND)

    def next(self, slots: int, left: int | None) -> int:
        """Return how many a slot should have in hand.

        Parameters
        ----------
        slots
            How many slots share the work.
        left
            How many mini-batches are left, where that is known. Of several slots each takes half
            of its share at most, so that all finish together; before that it has enough for one to
            be loaded while another one runs.

        """
        if self.count == 0:
            return 1
        size = float(self._most(slots))
        rate = self.count / self.seconds if self.seconds > 0 else LARGEST / SMALLEST_S
        at_least = AT_LEAST - (IN_HAND_S * rate <= 1)
        in_hand_s = IN_HAND_S * self.return_after_s(slots) / RETURN_AFTER_S
        size = max(at_least, min(size, in_hand_s * rate))
        if left is not None and slots > 1:
            share = -(-left // (2 * max(1, slots)))
            many = slots > SLOTS_A_SECOND
            smallest_s = self.return_after_s(slots) / SHARE_OF_RETURN if many else SMALLEST_S
            size = min(size, max(share, smallest_s * rate))
        return max(1, int(size))

    def _most(self, slots: int) -> int:
        """Return how many a lease may have, however quick mini-batches are."""
        grown = max(GROWTH * self.largest_yet, self.seen // SAMPLES)
        return min(LARGEST, max(1, IN_ALL // max(1, slots)), grown)
