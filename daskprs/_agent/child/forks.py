"""Forks that the script makes of its process: they must not speak or work for it."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def end_fork_of(pid: int) -> None:
    """End this process if it is a fork that returned from the script.

    `os.fork` in the script returns twice. The child would report its parent's mini-batch again, and
    in the caller's process it would drive the job a second time.
    """
    if os.getpid() != pid:
        os._exit(0)


def call_in_forks(method: Callable[[], None]) -> None:
    """Call a method in each fork of this process, for as long as its object is there."""
    weak = weakref.WeakMethod(method)

    def call_if_there() -> None:
        if (found := weak()) is not None:
            found()

    os.register_at_fork(after_in_child=call_if_there)
