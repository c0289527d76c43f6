"""Waiting for a condition, with a limit."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def poll_for(condition: Callable[[], object], timeout_s: float = 60.0) -> bool:
    """Return whether a condition came true within the limit."""
    until = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def together(folder: Path, count: int) -> None:
    """Wait, in a process of a script, until as many of them have come here: none does it all."""
    folder.mkdir(exist_ok=True)
    (folder / str(os.getpid())).touch()
    poll_for(lambda: len(list(folder.iterdir())) >= count)
