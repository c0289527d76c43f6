"""Calls of `run` at the same time in a process."""

from __future__ import annotations

from typing import NamedTuple

AT_ONCE = 64
"""Calls at the same time of a process whose `run` can be called so."""
MOST_AT_ONCE = 1000
OF_CALLS_S = 0.2
"""Seconds that an outcome waits in such a process at most for others. A call may cost money, and is
made again if the process ends before its outcome is sent."""


class Calls(NamedTuple):
    """How a process calls `run`; a process of a job without it makes one call at a time."""

    at_once: int
    """Number of mini-batches at a time."""
    is_async: bool
    """Whether `run` is a coroutine function; else each call has a thread."""
