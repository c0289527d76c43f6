"""A control group with little memory, for a process that the kernel is to kill in it."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

FORMS = {
    Path("/sys/fs/cgroup/memory"): ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    Path("/sys/fs/cgroup"): ("memory.max", "memory.swap.max"),
}
"""Where groups of version 1 and 2 lie, and the files with their limits."""


@contextlib.contextmanager
def memory_group(limit_bytes: int) -> Iterator[Path]:
    """Make a group, and remove it with its processes; `OSError`: this is not allowed."""
    group, names = next(
        (place / f"daskprs-test-{secrets.token_hex(4)}", names)
        for place, names in FORMS.items()
        if (place / "cgroup.procs").exists()
    )
    group.mkdir()
    try:
        limit, swap = (group / name for name in names)
        limit.write_text(str(limit_bytes))
        if swap.exists():
            swap.write_text(str(limit_bytes if "memsw" in swap.name else 0))
        yield group
    finally:
        while pids := (group / "cgroup.procs").read_text().split():
            for pid in map(int, pids):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        group.rmdir()


def why_no_memory_group() -> str:
    """Return why no group can be made here; empty if one can."""
    try:
        with memory_group(1 << 30) as group:
            return (
                ""
                if (group / "memory.oom_control").exists() or (group / "memory.events").exists()
                else "the group's memory is not controlled"
            )
    except (OSError, StopIteration) as error:
        return f"no control group can be made here: {error!r}"
