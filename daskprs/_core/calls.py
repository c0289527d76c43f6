"""Calls of `run` at the same time in a process."""

from __future__ import annotations

from typing import NamedTuple

AT_ONCE = 64
"""Calls at the same time of a process whose `run` can be called so."""
MOST_AT_ONCE = 1000


class Calls(NamedTuple):
    """How a process calls `run`; a process of a job without it makes one call at a time."""

    at_once: int
    """Number of mini-batches at a time."""
    is_async: bool
    """Whether `run` is a coroutine function; else each call has a thread."""
