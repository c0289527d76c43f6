"""The number of items with which a call of `run` stays within the memory.

An attempt that ran out of memory is made again in halves, in place: plan, numbers and resume do not
change. That needs items that are independent of each other.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from daskprs._core.actions import KeepSize
from daskprs._core.outcomes import Status
from daskprs._core.pieces import Pieces

if TYPE_CHECKING:
    from daskprs._core.entry import Entry
    from daskprs._core.isolation import Isolation
    from daskprs._core.ledger_state import AgentRecord, LedgerState
    from daskprs._core.outcomes import Failure, Outcome

NEEDED = 2
"""Number of mini-batches that need a size before all others get it: one may be an exception."""
MOST_IN_A_ROW = 4
"""Number of such attempts in a row in one process after which the next one gets a new process."""
_KINDS = re.compile(r"(MemoryError|\bResourceExhaustedError)$")
"""Names of the errors of Python, NumPy (``_ArrayMemoryError``), Arrow, PyTorch and CuPy, and of
TensorFlow."""
_WORDS = re.compile(
    r"\bRESOURCE_EXHAUSTED\b.*(memory|alloc)"  # JAX; for services, it is a quota
    r"|\b(CUDA|HIP)( error:)? out of memory\b"  # older releases of PyTorch
    r"|\bDefaultCPUAllocator: (can't allocate|not enough) memory\b"  # PyTorch without a GPU
    r"|\bFailed to allocate memory for requested buffer\b"  # ONNX Runtime
    r"|\bstd::bad_alloc\b|\bCannot allocate memory\b",  # C++, and the system
    re.DOTALL,
)


class MemorySizes:
    """Decides which attempts are made again in halves, and with which size others begin."""

    def __init__(self, state: LedgerState, isolation: Isolation) -> None:
        self._state = state
        self._isolation = isolation
        self._needed: list[int] = []
        """Sizes below that of all others with which mini-batches have succeeded."""
        self._is_advised = False

    def smaller(self, entry: Entry, outcome: Outcome, agent: AgentRecord) -> Entry | None:
        """Return the entry for an attempt with fewer items in a call; None if that cannot help.

        The failure is not the fault of the process, unless nothing in it has enough memory.
        """
        items = outcome.total or entry.mini_batch.items or 0
        if outcome.failure is None or not is_of_memory(outcome.failure) or items == 0:
            return None
        if outcome.status is Status.LOAD_EXCEPTION:  # it is loaded as a whole, whatever `run` gets
            return None
        at_most = None if entry.pieces is None else entry.pieces.at_most
        size = items if at_most is None else min(at_most, items)
        if entry.mini_batch.partition_key or entry.bisection is not None or size == 1:
            return None
        if not self._isolation.is_independent:
            self._advise(entry)
            return None
        agent.short_of_memory += 1
        if agent.short_of_memory > MOST_IN_A_ROW:  # it may hold the memory itself
            agent.is_done = True
            return entry.again().first()
        half = min([-(-size // 2), *(one for one in self._needed if one < size)])
        self._state.remark(
            "info",
            f"{entry.mini_batch.described} ran out of memory with {size} at once: it is run again "
            f"with at most {half}.",
        )
        # Alone: what follows it in a lease would begin before its size is known to fit.
        pieces = (entry.pieces or Pieces())._replace(at_most=half)
        return entry.again()._replace(
            pieces=pieces, failed_on=(), lease_at_most=1, runs_first=False
        )

    def succeed(self, entry: Entry) -> None:
        """Record a success; a size that two mini-batches needed is that of all others."""
        state, pieces = self._state, entry.pieces
        if pieces is None or pieces.at_most is None or entry.bisection is not None:
            return
        if state.at_most is not None and pieces.at_most >= state.at_most:
            return
        self._needed.append(pieces.at_most)
        if len(self._needed) < NEEDED:
            return
        state.at_most = max(self._needed)
        self._needed = [one for one in self._needed if one < state.at_most]
        state.actions.append(KeepSize(state.at_most))
        items = "row or file" if state.at_most == 1 else "rows or files"
        beside = " Lower mini_batch_size to that: larger ones have no stage processes."
        state.remark(
            "notice",
            f"two mini-batches ran out of memory, and did not with {state.at_most} {items} "
            "in a call of run(): from now on, no call gets more. The next job with this script "
            f"begins so.{'' if state.stages is None else beside}",
        )

    def _advise(self, entry: Entry) -> None:
        if not self._is_advised:
            self._is_advised = True
            self._state.remark(
                "notice",
                f"{entry.mini_batch.described} ran out of memory. If the rows of a mini-batch are "
                "independent of each other, independent_rows=True lets daskprs run it again in "
                "halves, and remember the size that fits.",
            )


def is_of_memory(failure: Failure) -> bool:
    """Return whether an attempt ended for want of memory, of the machine or of a device."""
    return bool(_KINDS.search(failure.kind) or _WORDS.search(failure.message))


def died_of_memory(outcome: Outcome) -> bool:
    """Return whether a process was killed for want of memory."""
    is_death = outcome.status is Status.PROCESS_DIED
    return is_death and outcome.failure is not None and is_of_memory(outcome.failure)
