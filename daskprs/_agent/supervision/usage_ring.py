"""The last minutes of an agent: what it has used, second by second, in the memory of its worker."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from daskprs._core.usage import UsageSample
from daskprs._system.memory import MemoryGroup, available_bytes
from daskprs._system.process_tree import tree_usage

if TYPE_CHECKING:
    from daskprs._agent.protocol.shared_page import Activity, SharedPage

SAMPLES = 300
"""Number of samples that are kept; there is about one for each second."""
RECENT = 3
"""Samples before a death that may have been taken after the kernel's kill."""


class UsageRing:
    """Samples of one agent with its sub-processes, the oldest first.

    It survives any end of the agent. The supervisor takes the samples about once a second.
    """

    def __init__(self, pid: int, page: SharedPage) -> None:
        self.group = MemoryGroup()
        """The control group of the worker and its agents."""
        self._pid = pid
        self._page = page
        self._samples: deque[UsageSample] = deque(maxlen=SAMPLES)
        self._kills = deque([self.group.kills()], maxlen=RECENT)

    @property
    def samples(self) -> tuple[UsageSample, ...]:
        """All samples."""
        return tuple(self._samples)

    def sample(self, activity: Activity, index: int | None) -> UsageSample:
        """Take a sample, and show the agent what its sub-processes hold."""
        used = tree_usage(self._pid)
        if used.children_peak_bytes:
            self._page.show_children(used.children_peak_bytes)
        # The kernel counts its kills for lack of memory. A count of some samples ago shows whether
        # the death of this agent is one of them.
        self._kills.append(self.group.kills())
        now = UsageSample(
            taken=time.time(),
            phase=activity.phase.name.lower(),
            index=index,
            processes=len(used.pids),
            cpu_s=used.cpu_s,
            rss_bytes=used.rss_bytes,
            read_bytes=used.read_bytes,
            written_bytes=used.written_bytes,
            available_bytes=available_bytes(),
            group_bytes=self.group.used_bytes(),
        )
        if used.pids:
            self._samples.append(now)
        return now

    def highest_bytes(self, seconds: float) -> int:
        """Return the highest memory of the samples of the last seconds."""
        since = time.time() - seconds
        samples = tuple(self._samples)  # the thread of the node monitor appends
        return max((one.rss_bytes for one in samples if one.taken >= since), default=0)

    def was_short_of_memory(self) -> bool | None:
        """Say whether the kernel has just killed a process here for that; None: unknown."""
        kills, before = self.group.kills(), self._kills[0]
        return None if kills is None or before is None else kills > before
