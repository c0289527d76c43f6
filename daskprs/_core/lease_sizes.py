"""Lease sizes: some seconds' worth of mini-batches for each slot, and fewer toward the end.

Before the end of a job, or of a worker, a slot gets what still fits.
"""

from __future__ import annotations

from dataclasses import dataclass

IN_HAND_S = 2.0
"""Seconds of work that each slot should have. It returns results about once a second, and needs
its next work, with time to load it, before it has finished the last."""
RETURN_AFTER_S = 1.0
"""Seconds that the first result of a lease waits for others before the lease returns …"""
SLOTS_A_SECOND = 100
"""… unless there are more slots than this: each return costs Dask and the driver milliseconds, and
this many returns a second keep them half busy."""
SMALLEST_S = 0.02
"""Smallest lease toward the end, in seconds of work: the task of a smaller one would cost more
than it saves …"""
SHARE_OF_RETURN = 4
"""… and with more than `SLOTS_A_SECOND` slots, this fraction (1/4) of the time between returns."""
AT_LEAST = 3
"""Minimum lease size: one mini-batch runs, one is being loaded, one waits. The third is left out
where a mini-batch takes longer than `IN_HAND_S`: it would be recalled before its turn, and a slot
can receive it while another one runs."""
GROWTH = 4
"""A lease has at most this many times the largest number of mini-batches returned together …"""
SAMPLES = 10
"""… or this fraction (1/10) of all that have returned: their mean duration is reliable."""
LARGEST = 10_000
IN_ALL = 100_000
"""Maximum number of mini-batches in all leases: the driver holds half a kilobyte for each."""
TO_THE_END_S = 0.1
"""Maximum seconds of work by which a lease grows to reach the end of a load group."""
UNKNOWN = 100
"""Assumed number of mini-batches left where the plan does not know it."""
UNKNOWN_S = 0.5
"""Assumed seconds per mini-batch until the first lease returns."""
MEMORY = 0.7
"""Weight of an older lease relative to the next newer one."""
MARGIN = 1.25
"""The share of its measured time that a mini-batch is given before an end: half of them take longer
than the mean, and what is cut off has worked for nothing."""


@dataclass(slots=True)
class LeaseSizes:
    """Learns from returned leases how long a mini-batch takes."""

    seconds: float = 0.0
    """Seconds spent on mini-batches; older leases count less."""
    count: float = 0.0
    """Number of mini-batches that took these seconds, weighted alike."""
    largest_yet: int = 1
    seen: int = 0

    @property
    def mini_batch_s(self) -> float | None:
        """Measured seconds of one mini-batch; None before the first lease has returned."""
        return self.seconds / self.count if self.count else None

    def work_s(self, count: int) -> float:
        """Return the estimated seconds that `count` mini-batches take."""
        measured_s = self.mini_batch_s
        return count * (UNKNOWN_S if measured_s is None else measured_s)

    def to_the_end(self, size: int, slots: int) -> int:
        """Return the number of mini-batches by which a lease may grow to complete a load group."""
        if self.seconds <= 0:
            return 0
        return int(max(0, min(self._most(slots) - size, TO_THE_END_S * self.count / self.seconds)))

    def learn(self, count: int, seconds: float) -> None:
        """Record that a lease finished `count` mini-batches in `seconds`."""
        if count > 0:
            self.seconds = MEMORY * self.seconds + seconds
            self.count = MEMORY * self.count + count
            self.largest_yet = max(self.largest_yet, count)
            self.seen += count

    def return_after_s(self, slots: int) -> float:
        """Return the seconds that the first result of a lease may wait for others."""
        return max(RETURN_AFTER_S, slots / SLOTS_A_SECOND)

    def next(self, slots: int, left: int | None) -> int:
        """Return the number of mini-batches that each of some slots should have.

        Where it is known how many are `left`, each of several slots takes at most half of its
        share, so that all finish together. Until then it has enough to load one mini-batch while
        another one runs.
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
        """Return the maximum lease size, however short the mini-batches are."""
        grown = max(GROWTH * self.largest_yet, self.seen // SAMPLES)
        return min(LARGEST, max(1, IN_ALL // max(1, slots)), grown)


def fitting(left_s: float, mini_batch_s: float | None, calls: int = 1) -> int:
    """Return how many mini-batches fit one after the other into the seconds until an end.

    Of several `calls` at a time, each takes as many times `mini_batch_s`, and has to fit as a
    whole. Before anything was measured, one is tried: nothing says that it does not fit.
    """
    if left_s <= 0:
        return 0
    if mini_batch_s is None:
        return 1
    return calls * int(min(left_s / (MARGIN * max(calls * mini_batch_s, 1e-9)), 1e9))
