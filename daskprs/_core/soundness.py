"""Whether a process is sound, and how many calls in a row have failed there since it was.

A process is sound at first, and after each success, until a failure. Where it makes several calls
at the same time, each says how many had failed when it began. Its success shows that none of these
has broken the process, and says nothing about those that failed while it was under way.
"""

from __future__ import annotations


class Soundness:
    """What the calls of a process say about it; the failures are numbered from 1."""

    def __init__(self) -> None:
        self.failures = 0
        self.in_a_row = 0
        """Number of failures since it was sound, but for those that began before the first."""
        self._first = 0
        """Number of the first of them."""
        self._beside: list[tuple[int, int]] = []
        """Of calls at the same time, the failures since it was sound: the number of each, and how
        many there were when it began."""

    def fail(self, failed_before: int | None = None) -> bool:
        """Record a failure; return whether the process was sound before it.

        `failed_before` is None where the process makes one call at a time.
        """
        self.failures += 1
        if failed_before is None:
            self.in_a_row += 1
            return self.in_a_row == 1
        self._beside.append((self.failures, failed_before))
        if self.in_a_row == 0:
            self._first, self.in_a_row = self.failures, 1
            return True
        self.in_a_row += failed_before >= self._first
        return False

    def succeed(self, failed_before: int | None = None) -> int:
        """Record a success; return the number of the last failure that no earlier one has caused.

        That one is the script's fault, or that of its mini-batch, and so are those before it.
        """
        known = self.failures if failed_before is None else failed_before
        self._beside = [one for one in self._beside if one[0] > known]
        if not self._beside:
            self.in_a_row = 0
        elif self._beside[0][0] > self._first:
            self._first = first = self._beside[0][0]
            self.in_a_row = 1 + sum(before >= first for _, before in self._beside[1:])
        return known + 1
