"""One agent process, as its supervisor sees it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from daskprs.agent.child.bootstrap import DUMP_SIGNAL
from daskprs.system import linux

if TYPE_CHECKING:
    from collections.abc import Callable

    from daskprs.agent.protocol.messages import ProcessSpec
    from daskprs.agent.supervision.channel import Channel

KILL_TIMEOUT_S = 10.0
"""Seconds to wait for the end of a killed process: milliseconds, unless it waits for a device."""
DUMP_POLL_S = 0.02


class AgentProcess:
    """The handle of a process that a zygote has forked.

    Attributes
    ----------
    channel
        The supervisor's end of the agent's socket.
    sentinel
        Readable once the process has ended.

    """

    def __init__(
        self,
        spec: ProcessSpec,
        pid: int,
        channel: Channel,
        order_kill: Callable[[int], None],
    ) -> None:
        self.name = spec.name
        self.pid = pid
        self.channel = channel
        ended_reader, self._ended_writer = os.pipe()
        # A connection, since it is closed with its last reference: an agent that was idle when its
        # job failed is never dismissed, only killed.
        self.sentinel = Connection(ended_reader, writable=False)
        self._stderr = Path(spec.stderr)
        self._order_kill = order_kill
        self._returncode: int | None = None
        self._over = threading.Event()
        self.orphaned = False
        """Whether the process ended because its zygote did, so that no mini-batch is to blame."""

    def ended(self, returncode: int, *, orphaned: bool = False) -> None:
        """Record the end of the process (called by the zygote's listener)."""
        if self._over.is_set():
            return
        self.orphaned = orphaned
        self._returncode = returncode
        self._over.set()
        os.close(self._ended_writer)

    def returncode(self, timeout_s: float) -> int | None:
        """Return the return code once the process has ended; negative: the signal."""
        self._over.wait(timeout_s)
        return self._returncode

    def kill(self) -> int:
        """Kill the process, its group and every descendant, and return its return code."""
        if not self._over.is_set():
            self._order_kill(self.pid)
        returncode = self.returncode(KILL_TIMEOUT_S)
        return -signal.SIGKILL if returncode is None else returncode

    def dump_stacks(self, wait_s: float = 0.5) -> None:
        """Write the stacks of all threads to the stderr log, for `wait_s` seconds at most.

        The handler is in C and needs no GIL; a stopped process cannot run it.
        """
        if self._over.is_set():
            return  # another process may have its pid by now
        before = self._stderr_bytes()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, DUMP_SIGNAL)
        until = time.monotonic() + wait_s
        seen = before
        while time.monotonic() < until:
            time.sleep(DUMP_POLL_S)
            now = self._stderr_bytes()
            if now > before and now == seen:
                return
            seen = now

    def rss_bytes(self) -> int:
        """Return the resident memory of the process and all its descendants."""
        return sum(_rss_bytes(pid) for pid in [self.pid, *linux.descendants(self.pid)])

    def close(self) -> None:
        """Close the descriptors of a process that has ended."""
        self.channel.close()
        self.sentinel.close()

    def _stderr_bytes(self) -> int:
        try:
            return self._stderr.stat().st_size
        except OSError:
            return 0


def _rss_bytes(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
