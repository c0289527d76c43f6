"""The ways to die, by name: what entry scripts of the tests do to their process.

Imported by agents (the folder is on their ``PYTHONPATH``) and by the tests.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from multiprocessing import shared_memory
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

FOR_EVER_S = 3600
SHARED = b"left by a deed"


def raise_error() -> None:
    """Fail as Python does."""
    msg = "the deed was done"
    raise ValueError(msg)


def exit_with(code: int) -> Callable[[], None]:
    """End the process at once, as if it had been asked to."""
    return lambda: os._exit(code)


def kill_with(number: int) -> Callable[[], None]:
    """Send the own process a signal."""
    return lambda: os.kill(os.getpid(), number)


def crash() -> None:
    """Read address 0."""
    ctypes.string_at(0)


def hang() -> None:
    """Wait in Python."""
    time.sleep(FOR_EVER_S)


def hang_with_gil() -> None:
    """Wait in C for ever, without letting any other thread of the process run."""
    mutex = ctypes.create_string_buffer(64)  # all zero: PTHREAD_MUTEX_INITIALIZER
    library = ctypes.PyDLL(None)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)


def close_descriptors() -> None:
    """Close whatever is open, ours and our supervisor's."""
    os.closerange(0, 1024)
    time.sleep(FOR_EVER_S)


def leave_grandchild() -> None:
    """Start a process that outlives this one, leave shared memory, and die."""
    segment = shared_memory.SharedMemory(create=True, size=len(SHARED))
    segment.buf[: len(SHARED)] = SHARED
    command = f"import os, time; os.setsid(); time.sleep({FOR_EVER_S})"
    subprocess.Popen([sys.executable, "-c", command])
    os._exit(5)


def flood() -> None:
    """Write 100 MB to stdout, and die."""
    line = b"x" * 1023 + b"\n"
    for _ in range(100):
        os.write(1, line * 1024)
    os._exit(6)


DEEDS: dict[str, Callable[[], None]] = {
    "raise": raise_error,
    "exit 0": exit_with(0),
    "exit 3": exit_with(3),
    "sys.exit": lambda: sys.exit(4),
    "SIGSEGV": crash,
    "SIGKILL": kill_with(signal.SIGKILL),
    "hang": hang,
    "hang with the GIL": hang_with_gil,
    "SIGSTOP": kill_with(signal.SIGSTOP),
    "leave a grandchild": leave_grandchild,
    "close descriptors": close_descriptors,
    "flood stdout": flood,
}


def once(marker: str) -> bool:
    """Say whether this is the first call with this marker, in any process."""
    try:
        Path(marker).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class Bomb:
    """An object that does a deed when it is unpickled: a death while loading."""

    def __init__(self, deed: str) -> None:
        self.deed = deed

    def __setstate__(self, state: dict[str, str]) -> None:
        """Do it in agents only."""
        self.deed = state["deed"]
        if self.deed and "DASKPRS_TEST_AGENT" in os.environ:
            DEEDS[self.deed]()
