"""The shared page: what an agent is doing, readable without asking it.

One page of memory that the agent writes and its supervisor reads, so that a mini-batch costs no
message. The supervisor looks at it when a deadline nears and when the agent has died; it works
while the script holds the GIL.

*Consistency.* Phase, position and time belong together; they are written between two steps of a
sequence number, which is odd meanwhile. A reader that meets an odd or a changed number looks
again. (An agent that died in between leaves an odd number for good: after a few looks the reader
takes what stands there.)

*Recall.* The supervisor takes back the mini-batches that the agent has not begun. The agent
claims a position by writing it to `NEXT` and only then looks at `RECALL`; the supervisor writes
`RECALL` and only then looks at `NEXT`. With a fence between the two steps on both sides at least
one of them sees the other: either the supervisor finds the position claimed, or the agent finds
the recall and waits to be told (`Keep`) how far it may go.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from enum import IntEnum
from typing import NamedTuple

PAGE_BYTES = mmap.PAGESIZE
NOTHING = -1
"""The position where there is none."""

_SEQUENCE, _PHASE, _POSITION, _SINCE_NS, _LEASE, _NEXT, _LOADING, _DONE, _RECALL, _TOTAL = range(10)
_LOOKS = 1000
"""How often a reader looks again at an odd sequence number before it takes what is there."""


class Phase(IntEnum):
    """What the agent's main thread is at."""

    STARTING = 0
    INIT = 1
    IDLE = 2
    LOADING = 3
    RUNNING = 4
    SHUTDOWN = 5
    RETURNING = 6
    """`run` is over; what it made waits to be sent: the supervisor may be between two leases."""


class Activity(NamedTuple):
    """A consistent look at the page."""

    phase: Phase
    position: int
    """Which one of the lease is being loaded or run; -1 where none is."""
    since_ns: int
    """`time.monotonic_ns` at the start of the phase."""
    lease_id: int
    loading: int
    """Which one the reader's thread is loading ahead; -1 where none is."""
    done: int
    """How many of the lease have finished."""
    total: int
    """Items of the one that runs."""

    def age_s(self) -> float:
        """For how long the phase has lasted."""
        return (time.monotonic_ns() - self.since_ns) / 1e9


class SharedPage:
    """One mapping of the page, in the agent or in its supervisor."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, PAGE_BYTES)
        self._cells = memoryview(self._map).cast("q")
        self._barrier = threading.Lock()

    def close(self) -> None:
        """Unmap the page."""
        self._cells.release()
        self._map.close()

    # ---- the agent's side ----

    def enter(self, phase: Phase, position: int = NOTHING, total: int = 0) -> None:
        """Say what the main thread turns to now."""
        cells = self._cells
        cells[_SEQUENCE] += 1
        self._fence()
        cells[_PHASE] = phase
        cells[_POSITION] = position
        cells[_TOTAL] = total
        cells[_SINCE_NS] = time.monotonic_ns()
        self._fence()
        cells[_SEQUENCE] += 1

    def begin_lease(self, lease_id: int) -> None:
        """Start on a lease: nothing of it is claimed or done."""
        cells = self._cells
        cells[_NEXT] = NOTHING
        cells[_DONE] = 0
        cells[_LOADING] = NOTHING
        self._fence()
        cells[_LEASE] = lease_id

    def claim(self, position: int) -> bool:
        """Claim a position; False when a recall is out, and the supervisor must be heard first."""
        cells = self._cells
        cells[_NEXT] = position
        self._fence()
        return cells[_RECALL] != cells[_LEASE]

    def loading(self, position: int) -> None:
        """Say which position is being loaded ahead (`NOTHING`: none any more)."""
        self._cells[_LOADING] = position

    def done(self, count: int) -> None:
        """Say how many of the lease have finished."""
        self._cells[_DONE] = count

    # ---- the supervisor's side ----

    def recall(self, lease_id: int) -> int:
        """Take back what is not begun of a lease, and return the last position that is."""
        self._cells[_RECALL] = lease_id
        self._fence()
        if self._cells[_LEASE] != lease_id:
            # The lease has not been picked up yet: the agent will see the recall at its first
            # claim, and nothing of it is begun.
            return NOTHING
        return self._cells[_NEXT]

    def look(self) -> Activity:
        """Return what the agent is doing."""
        for _ in range(_LOOKS):
            before = self._cells[_SEQUENCE]
            self._fence()
            activity = self._read()
            self._fence()
            if before % 2 == 0 and before == self._cells[_SEQUENCE]:
                break
        return activity

    def _read(self) -> Activity:
        cells = self._cells
        return Activity(
            Phase(cells[_PHASE]),
            cells[_POSITION],
            cells[_SINCE_NS],
            cells[_LEASE],
            cells[_LOADING],
            cells[_DONE],
            cells[_TOTAL],
        )

    def _fence(self) -> None:
        # Taking a lock is an atomic read-modify-write, so a full memory barrier; Python has no
        # other name for one.
        with self._barrier:
            pass


def new_page() -> int:
    """Return the descriptor of a fresh page (all zero, no lease, no recall)."""
    fd = os.memfd_create("daskprs-agent")
    os.ftruncate(fd, PAGE_BYTES)
    return fd
