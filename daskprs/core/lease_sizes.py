"""How many mini-batches a lease carries: about a second's worth, and fewer toward the end."""

from __future__ import annotations

from dataclasses import dataclass

TARGET_S = 1.0
"""A lease should last about so long: a Dask task costs milliseconds."""
GROWTH = 4
"""A lease carries at most so many times more than the largest one before."""
LARGEST = 10_000
WEIGHT = 0.3
"""Of the newest lease in the average of seconds per mini-batch."""


@dataclass(slots=True)
class LeaseSizes:
    """Learns from each lease how long a mini-batch takes."""

    seconds_each: float | None = None
    largest_yet: int = 1

    def learn(self, count: int, seconds: float) -> None:
        """Take note of a lease: so many mini-batches in so many seconds."""
        if count == 0:
            return
        each = seconds / count
        old = self.seconds_each
        self.seconds_each = each if old is None else (1 - WEIGHT) * old + WEIGHT * each
        self.largest_yet = max(self.largest_yet, count)

    def next(self, slots: int, left: int | None) -> int:
        """Return the size of the next lease.

        Parameters
        ----------
        slots
            How many slots share the work.
        left
            How many mini-batches are left, where that is known. A slot takes half of its share at
            most, so that all finish together.

        """
        if self.seconds_each is None:
            return 1
        wanted = LARGEST if self.seconds_each <= 0 else int(TARGET_S / self.seconds_each)
        size = min(wanted, GROWTH * self.largest_yet, LARGEST)
        if left is not None:
            size = min(size, -(-left // (2 * max(1, slots))))
        return max(1, size)
