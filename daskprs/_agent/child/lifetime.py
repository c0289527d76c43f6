"""The end of a process that has done enough: between two mini-batches, before it is killed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from daskprs._system.process_tree import MemoryLooks

if TYPE_CHECKING:
    from daskprs._core.limits import Limits

SHARE = 0.8
"""Share of the memory limit with which a process ends."""
GROWTH = 1.25
"""It has grown by this since its first mini-batch; else it needs that much for each one."""


class Lifetime:
    """Says after each mini-batch whether the process ends.

    The limits are those of mini-batches, and of the memory of the agent with its sub-processes.
    """

    def __init__(self, limits: Limits) -> None:
        self._left = limits.agent_max_mini_batches
        self._limit = limits.agent_memory_bytes
        self._first_bytes: int | None = None
        self._looks = MemoryLooks()

    def is_over(self) -> bool:
        """Return whether the process ends after the mini-batch that it has just run."""
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                return True
        if self._limit is None:
            return False
        # A look costs as much as a short mini-batch, and more where processes share memory.
        used = self._looks.look(os.getpid(), SHARE * self._limit)
        if used is None:
            return False
        if self._first_bytes is None:
            self._first_bytes = used
        return used >= max(SHARE * self._limit, GROWTH * self._first_bytes)
