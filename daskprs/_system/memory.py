"""The memory that a process may still use, by the machine and by its control group."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from daskprs._system.linux import number_after

MEMINFO = Path("/proc/meminfo")
CGROUPS = Path("/sys/fs/cgroup")
LIMITS = ("memory.max", "memory/memory.limit_in_bytes")
"""Files with the limit of this container, in version 2 and 1 of cgroups."""
UNLIMITED_BYTES = 1 << 60
"""Version 1 has a number above this in place of no limit."""


def usable_bytes() -> int | None:
    """Return the available memory, or the limit of the container if that is less; None: unknown."""
    known = (available_bytes() or None, *(_number(CGROUPS / name) for name in LIMITS))
    return min((one for one in known if one is not None), default=None)


def megabytes(size: int) -> str:
    """Return a size for people: ``1,536 MB``, in units of 1024."""
    return f"{size / (1 << 20):,.0f} MB"


def available_bytes(meminfo: Path = MEMINFO) -> int:
    """Return the memory that the machine has left; 0: unknown."""
    return (number_after(b"MemAvailable:", meminfo) or 0) << 10


class MemoryGroup:
    """The control group that limits the memory of this process, in version 2 or 1.

    `limit_bytes` is the lowest limit of the group and of the groups around it; None without one.
    """

    def __init__(
        self,
        own: Path = Path("/proc/self/cgroup"),
        groups: Path = CGROUPS,
        vmstat: Path = Path("/proc/vmstat"),
    ) -> None:
        self._vmstat = vmstat
        folder, top, form = _memory_group(own, groups)
        self._kills = folder / form.kills
        self.limit_bytes: int | None = None
        self._used: Path | None = None
        for group in (folder, *folder.parents):
            limit = _number(group / form.limit)
            if limit is not None and limit < (self.limit_bytes or UNLIMITED_BYTES):
                self.limit_bytes, self._used = limit, group / form.used
            if group == top:
                break

    def used_bytes(self) -> int:
        """Return the bytes that all processes under the limit hold, the file cache included.

        0 stands for no limit.
        """
        return 0 if self._used is None else _number(self._used) or 0

    def kills(self) -> int | None:
        """Return how many processes the kernel has killed here so far for lack of memory.

        Where the group does not tell, those of the whole machine count; None: unknown.
        """
        found = number_after(b"oom_kill ", self._kills)
        return number_after(b"oom_kill ", self._vmstat) if found is None else found


class _GroupForm(NamedTuple):
    """The names of a group's files."""

    limit: str
    used: str
    kills: str


_V2 = _GroupForm("memory.max", "memory.current", "memory.events")
_V1 = _GroupForm("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control")


def _memory_group(own: Path, groups: Path) -> tuple[Path, Path, _GroupForm]:
    """Return the folder of the memory's group, the topmost group, and the form of their files.

    A container may see its group as the topmost one, whatever path the kernel names.
    """
    paths: dict[str, str] = {}
    with suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            paths.update(dict.fromkeys(controllers.split(","), path))
    is_first = "memory" in paths
    top, form = (groups / "memory", _V1) if is_first else (groups, _V2)
    folder = top / paths.get("memory" if is_first else "", "/").lstrip("/")
    return (folder if folder.is_dir() else top), top, form


def _number(file: Path) -> int | None:
    try:
        return int(file.read_bytes())
    except (OSError, ValueError):  # "max" is not a number
        return None
