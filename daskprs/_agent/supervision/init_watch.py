"""The watch over an `init`: whether it still does anything, or waits for what never comes.

How long a model takes to load says nothing of whether it ever will be there. An `init` that does
nothing is ended; one that loads a model for half an hour is not.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from daskprs._system.process_tree import tree_work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daskprs._system.process_tree import TreeWork

SHARE_OF_A_CORE = 0.01
"""An `init` that uses less of the processor than this has only threads that look around."""
LOOKS = 20
"""Looks within the timeout."""
PAUSE_S = 5.0
"""Seconds by which a look may be late, unless this process was stopped meanwhile."""


class _Trace(NamedTuple):
    """What changes when an `init` does something, but for the seconds of the processor."""

    work: TreeWork
    printed: tuple[int, ...]
    others: int
    """The time at which another `init` of the node has last left a sign of work."""


class InitWatch:
    """Counts how long one `init` has done nothing, while no other one of its node did anything.

    Several may wait for one of them, which downloads what all need. So each that works leaves a
    sign of it, a file of the node whose time changes, and the others count from there. The
    descendants of the agent's process count, too, and what it prints into the logs.
    """

    def __init__(self, pid: int, logs: Sequence[str], sign: Path, timeout_s: float) -> None:
        self._pid = pid
        self._logs = [Path(log) for log in logs]
        self._sign = sign
        self._timeout_s = timeout_s
        self._every_s = timeout_s / LOOKS
        self._looked_s = self._since_s = time.monotonic()
        self._cpu_s = 0.0
        self._trace: _Trace | None = None

    def is_idle(self) -> bool:
        """Look at the processes, and say whether they have done nothing for the whole timeout."""
        now_s = time.monotonic()
        if now_s - self._looked_s < self._every_s and self._trace is not None:
            return False
        # Seconds in which this process was stopped say nothing of the other one.
        if now_s - self._looked_s > self._every_s + PAUSE_S:
            self._trace = None
        self._looked_s = now_s
        work = tree_work(self._pid)
        trace = _Trace(work._replace(cpu_s=0.0), tuple(map(_size, self._logs)), _time(self._sign))
        before, self._trace = self._trace, trace
        used_s = work.cpu_s - self._cpu_s
        is_busy = used_s >= SHARE_OF_A_CORE * self._timeout_s or work.waits_for_disk
        if before is None or is_busy or before[:2] != trace[:2]:
            self._show_work()
            trace = trace._replace(others=_time(self._sign))
        elif before.others == trace.others:
            return now_s - self._since_s >= self._timeout_s
        self._since_s, self._cpu_s, self._trace = now_s, work.cpu_s, trace
        return False

    def _show_work(self) -> None:
        """Change the time of the sign."""
        with suppress(OSError):  # a full disk, say: the others count by their own work alone
            self._sign.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(self._sign, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                os.utime(fd)
            finally:
                os.close(fd)


def _size(log: Path) -> int:
    try:
        return log.stat().st_size
    except OSError:
        return 0


def _time(sign: Path) -> int:
    try:
        return sign.stat(follow_symlinks=False).st_mtime_ns
    except OSError:
        return 0
