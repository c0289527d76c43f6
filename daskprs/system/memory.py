"""The memory that a process may still use, by the machine and by its cgroup."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
CGROUPS = Path("/sys/fs/cgroup")
LIMITS = ("memory.max", "memory/memory.limit_in_bytes")
"""Files with the limit of this container, in version 2 and 1 of cgroups."""


def usable_bytes(meminfo: Path = MEMINFO, cgroups: Path = CGROUPS) -> int | None:
    """Return the available memory, or the limit of the container if that is less; None: unknown."""
    known = []
    with suppress(OSError, ValueError, StopIteration):
        line = next(one for one in meminfo.read_text().splitlines() if "MemAvailable" in one)
        known.append(int(line.split()[1]) << 10)
    for name in LIMITS:
        with suppress(OSError, ValueError):  # "max" is not a number
            known.append(int((cgroups / name).read_text()))
    return min(known, default=None)
