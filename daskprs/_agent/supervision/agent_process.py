"""The handle of an agent process, with which its supervisor ends it and reads its last words."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from daskprs._agent.protocol.shared_page import SharedPage
from daskprs._system.linux import DUMP_SIGNAL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from daskprs._agent.protocol.messages import ProcessSpec
    from daskprs._agent.supervision.channel import Messages
    from daskprs._agent.supervision.masked_log import MaskedLog

KILL_TIMEOUT_S = 10.0
"""Seconds to wait for the end of a killed process: milliseconds, unless it waits for a device."""
DUMP_S, DUMP_POLL_S = 2.0, 0.02
"""Seconds to wait for stacks, at most, also on a busy machine, and between looks at the log."""
STACKS_BYTES = 256 << 10
"""Bytes from the end of a stderr log that are searched for stacks."""


class AgentProcess:
    """A process that a zygote has forked, or the agent in the caller's process."""

    def __init__(
        self,
        spec: ProcessSpec,
        pid: int,
        channel: Messages,
        page_fd: int,
        order_kill: Callable[[int], None],
        logs: Sequence[MaskedLog] = (),
    ) -> None:
        self.pid = pid
        self.page = SharedPage(page_fd)
        self.channel = channel
        """The supervisor's end of the messages to the agent."""
        ended_reader, self._ended_writer = os.pipe()
        # A connection, since it is closed with its last reference: an agent that was idle when its
        # job failed is never dismissed, only killed.
        self.sentinel = Connection(ended_reader, writable=False)
        """Readable once the process has ended."""
        self._stderr = Path(spec.stderr)
        self._first_byte = self._stderr_bytes()
        """Where the output of this process begins: an earlier one may have had its name."""
        self._order_kill = order_kill
        self._logs = logs
        self._returncode: int | None = None
        self._over = threading.Event()
        self.orphaned = False
        """Whether the process ended because its zygote did, so that no mini-batch is to blame."""
        self.apart: tuple[str, ...] = ()
        """The packages of `preload` that it has to import itself, with the reasons."""
        self.killed = False
        """Whether `kill` was called while the process lived."""
        self.peak_bytes = 0
        """The highest memory of an ended process during its last mini-batch; 0: unknown."""

    def ended(self, returncode: int, peak_bytes: int = 0, *, orphaned: bool = False) -> None:
        """Record the end of the process (called by the zygote's listener)."""
        if self._over.is_set():
            return
        self.orphaned = orphaned
        self.peak_bytes = peak_bytes
        self._returncode = returncode
        self._over.set()
        os.close(self._ended_writer)

    def returncode(self, timeout_s: float) -> int | None:
        """Return the return code once the process has ended; negative: the signal."""
        self._over.wait(timeout_s)
        return self._returncode

    def kill(self) -> int:
        """Kill the process, its group and every descendant, and return its return code.

        Its logs are whole then.
        """
        if not self._over.is_set():
            self.killed = True
            self._order_kill(self.pid)
        returncode = self.returncode(KILL_TIMEOUT_S)
        # A zygote that is stopped obeys nothing, and an agent would work on for nobody. The id is
        # still that of the agent, since nobody has reaped it. An agent in this process has its own.
        if returncode is None and self.pid != os.getpid():
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        for log in self._logs:
            log.wait()
        return -signal.SIGKILL if returncode is None else returncode

    def dump_stacks(self) -> str:
        """Write the stacks of all threads to the stderr log, and return what was written.

        The handler is in C and needs no GIL; a stopped process cannot run it.
        """
        if self._over.is_set():
            return ""  # another process may have its pid by now
        before = self._stderr_bytes()
        with suppress(ProcessLookupError):
            os.kill(self.pid, DUMP_SIGNAL)
        until = time.monotonic() + DUMP_S
        seen = before
        while time.monotonic() < until:
            time.sleep(DUMP_POLL_S)
            now = self._stderr_bytes()
            # The handler writes piece by piece: the dump is whole once the log has grown and rests.
            if now > before and now == seen:
                break
            seen = now
        return self.stderr_from(before)

    def stderr_from(self, offset: int = 0) -> str:
        """Return the stderr log from an offset on, `STACKS_BYTES` from its end at most.

        What an earlier process of the same name has written is left out.
        """
        try:
            with self._stderr.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(offset, self._first_byte, size - STACKS_BYTES))
                return file.read().decode("utf-8", "replace")
        except OSError:
            return ""

    def close(self) -> None:
        """Close the descriptors and the page of a process that has ended."""
        self.page.close()
        self.channel.close()
        self.sentinel.close()

    def _stderr_bytes(self) -> int:
        try:
            return self._stderr.stat().st_size
        except OSError:
            return 0
