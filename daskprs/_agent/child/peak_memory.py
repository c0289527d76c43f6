"""The highest memory of an agent and its sub-processes during one mini-batch.

The kernel keeps the highest resident memory of each process, and forgets it on request. So a peak
of a millisecond counts, and a signal that kills the agent does not hide it.
"""

from __future__ import annotations

import os
import time
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import TYPE_CHECKING

from daskprs._system import linux
from daskprs._system.memory import MemoryGroup

if TYPE_CHECKING:
    from daskprs._agent.protocol.shared_page import SharedPage
    from daskprs._core.outcomes import Failure


KILLED_MEANWHILE = (
    " (Meanwhile the kernel killed a process here for lack of memory: a sub-process of the script, "
    "or one of its neighbours.)"
)
SHORTEST_S = 0.01
"""Quicker mini-batches share a measurement, which would cost a fifth of their time."""


class PeakMemory:
    """Measures from one `reset` to the next.

    The result is the sum of two peaks: that of the agent, and that of its sub-processes. Living
    sub-processes are added up. One that has ended counts in two cases: it is the largest so far, or
    the supervisor has seen it. The supervisor looks about once a second.
    """

    def __init__(self, page: SharedPage) -> None:
        self._page = page
        self._pid = os.getpid()
        self._group = MemoryGroup()
        self._kills: int | None = None
        self._reset_s = 0.0
        self._is_reset = False
        self._largest_kb = 0

    def reset(self) -> None:
        """Begin to measure, unless the last measurement has just begun."""
        now_s = time.monotonic()
        if now_s - self._reset_s < SHORTEST_S:
            return
        self._reset_s = now_s
        self._kills = self._group.kills()
        self._is_reset = linux.reset_peak("self")
        self._largest_kb = getrusage(RUSAGE_CHILDREN).ru_maxrss
        self._page.mark_ended_before(self._largest_kb << 10)
        self._page.taken_children_bytes()
        for pid in _descendants():
            linux.reset_peak(pid)

    def taken(self) -> int:
        """Return the highest memory since `reset`, in bytes; 0 where the kernel cannot reset it."""
        if not self._is_reset or os.getpid() != self._pid:  # a fork has no page
            return 0
        own = getrusage(RUSAGE_SELF).ru_maxrss << 10
        return own if time.monotonic() - self._reset_s < SHORTEST_S else own + self._of_others()

    def explained(self, failure: Failure) -> Failure:
        """Return an exception of the script, with a kill by the kernel that may be its cause."""
        kills = self._group.kills()
        if kills is None or self._kills is None or kills <= self._kills:
            return failure
        return failure._replace(message=f"{failure.message}{KILLED_MEANWHILE}")

    def _of_others(self) -> int:
        living = sum(map(linux.peak_bytes, _descendants()))
        largest_kb = getrusage(RUSAGE_CHILDREN).ru_maxrss
        ended = largest_kb << 10 if largest_kb > self._largest_kb else 0
        return max(living, ended, self._page.taken_children_bytes())


def _descendants() -> list[int]:
    """Return the sub-processes; a call of the system says quickly that there are none."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return []
    return linux.descendants(os.getpid())
