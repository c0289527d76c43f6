"""The usage of a process and its descendants: processor, memory and disk, as the kernel counts."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from daskprs._system import linux

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
UTIME, CSTIME, RSS = 11, 14, 21
"""Places in ``/proc/<pid>/stat`` behind the name; user and system time of ended children are in
the range of the first two."""
LOOKS_SHARE = 0.05
"""Share of the time that looks at `held_bytes` may take: of processes of 10 GB, one takes 0.8 s."""


class TreeUsage(NamedTuple):
    """The sums of a process and its living descendants."""

    pids: tuple[int, ...] = ()
    """The process and its descendants that live."""
    cpu_s: float = 0.0
    """Seconds of the processor; descendants that have ended count, too."""
    rss_bytes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    children_peak_bytes: int = 0
    """The highest memory of each descendant that lives, added up."""


def tree_usage(pid: int) -> TreeUsage:
    """Measure a process and its descendants; whatever has ended meanwhile counts nothing."""
    pids, ticks, pages, read, written, peaks = [], 0, 0, 0, 0, 0
    for one in (pid, *linux.descendants(pid)):
        with suppress(OSError, ValueError, IndexError):
            cells = _cells(Path(f"/proc/{one}/stat"))
            ticks += sum(map(int, cells[UTIME : CSTIME + 1]))
            pages += int(cells[RSS])
            pids.append(one)
            peaks += linux.peak_bytes(one) if one != pid else 0
        with suppress(OSError, ValueError, IndexError):  # another user's
            io = Path(f"/proc/{one}/io").read_bytes().split()
            read, written = read + int(io[9]), written + int(io[11])
    return TreeUsage(tuple(pids), ticks / TICKS_PER_S, pages * PAGE_BYTES, read, written, peaks)


def pss_bytes(pids: tuple[int, ...]) -> int | None:
    """Return the proportional memory of processes; None where the kernel does not tell any.

    The kernel walks through all pages of a process for it, so this is for now and then.
    """
    rollups = (Path(f"/proc/{pid}/smaps_rollup") for pid in pids)
    found = [linux.number_after(b"\nPss:", one) for one in rollups]
    known = [one for one in found if one is not None]
    return sum(known) << 10 if known else None


def held_bytes(pid: int, most_bytes: float) -> int:
    """Return the memory of a process and its descendants.

    It is the sum of what each has, unless that is more than `most_bytes`. Then pages that they
    share count once in all, and what other processes share with them counts in parts. Of another
    user's process, the kernel tells the sum only.
    """
    used = tree_usage(pid)
    if used.rss_bytes <= most_bytes or len(used.pids) < 2:  # noqa: PLR2004 - it is alone
        return used.rss_bytes
    return sum(pss_bytes((one,)) or _resident_bytes(one) for one in used.pids)


def _resident_bytes(pid: int) -> int:
    return (linux.number_after(b"\nVmRSS:", Path(f"/proc/{pid}/status")) or 0) << 10


class MemoryLooks:
    """Looks at the memory of a process and its descendants, for a part of the time."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def look(self, pid: int, most_bytes: float) -> int | None:
        """Return `held_bytes`; None where the last look was too long for another one now."""
        begun_s, cpu_s = time.monotonic(), time.thread_time()
        if begun_s < self._next_s:
            return None
        held = held_bytes(pid, most_bytes)
        # Whoever stops this process during a look, as by Ctrl-Z, does not make the look longer.
        self._next_s = begun_s + (time.thread_time() - cpu_s) / LOOKS_SHARE
        return held


class TreeWork(NamedTuple):
    """What a process and its descendants have done."""

    pids: tuple[int, ...]
    """The process and its descendants that live."""
    cpu_s: float
    moved_bytes: int
    """Bytes read and written, also by pipes and from the page cache."""
    waits_for_disk: bool
    """Whether one of their threads waits for a disk, a mount or a device."""


def tree_work(pid: int) -> TreeWork:
    """Return what a process and its descendants have done until now."""
    pids, ticks, moved, waits = [], 0, 0, False
    for one in (pid, *linux.descendants(pid)):
        with suppress(OSError, ValueError, IndexError):
            ticks += sum(map(int, _cells(Path(f"/proc/{one}/stat"))[UTIME : CSTIME + 1]))
            pids.append(one)
        with suppress(OSError, ValueError, IndexError):
            io = Path(f"/proc/{one}/io").read_bytes().split()
            moved += int(io[1]) + int(io[3])
        with suppress(OSError, IndexError):
            threads = Path(f"/proc/{one}/task").iterdir()
            waits = waits or any(_cells(thread / "stat")[0] == b"D" for thread in threads)
    return TreeWork(tuple(pids), ticks / TICKS_PER_S, moved, waits)


def _cells(stat: Path) -> list[bytes]:
    """Return the cells of a file ``stat`` behind the name, which may have spaces and brackets."""
    return stat.read_bytes().rpartition(b") ")[2].split()
