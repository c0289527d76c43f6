"""A process that runs a script, under whichever interpreter: its logs, and its threads."""

from __future__ import annotations

import io
import os
import threading
import time
from typing import IO

THREADS_GRACE_S = 1.0
"""Seconds for threads of the script to end by themselves after `shutdown`."""


def log_text(fd: int) -> IO[str]:
    """Return a text file over a log that never refuses a character."""
    return io.TextIOWrapper(
        os.fdopen(fd, "wb", closefd=False),
        encoding="utf-8",
        errors="backslashreplace",
        line_buffering=True,
    )


def threads_left() -> list[str]:
    """Return the names of the threads that this interpreter still waits for after a second."""
    until = time.monotonic() + THREADS_GRACE_S
    main_thread = threading.main_thread()
    threads = [one for one in threading.enumerate() if one is not main_thread and not one.daemon]
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return [thread.name for thread in threads if thread.is_alive()]
