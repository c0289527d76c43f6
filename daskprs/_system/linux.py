"""Linux calls for a process that supervises others, which Python does not offer."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from pathlib import Path

DUMP_SIGNAL = signal.SIGRTMIN + 7
"""Makes an agent write the stacks of all its threads to its stderr log."""
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MOST_MMAP_THRESHOLD = 32 << 20
"""The most that glibc allows."""
_MALLOC_VARIABLES = {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"}
_libc = ctypes.CDLL(None, use_errno=True)
_libc.getenv.restype = ctypes.c_void_p


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends.

    If the parent has ended before this call, the process kills itself: the kernel never would.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def wake_with_parent() -> None:
    """Have the kernel continue this process, if it is stopped, when its parent ends.

    The signal also comes when a thread of the parent ends; it has no effect then.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends (a child subreaper)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def close_to_same_user() -> None:
    """Close this process's memory, environment and descriptors to processes of the same user.

    The kernel then gives its files in ``/proc`` to root, lets only root trace it, and writes
    no core dump of it. Programs that this process starts are open again.
    """
    _prctl(_PR_SET_DUMPABLE, 0)


def keep_privileges() -> None:
    """Have no program that this process starts gain rights, as sudo and its like would."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def keep_freed_memory(most: int) -> None:
    """Have the C library keep up to `most` bytes of freed memory for what this process needs next.

    Other C libraries than glibc go on as before, and so does one that the environment has set.
    """
    if not _MALLOC_VARIABLES & os.environ.keys():
        with suppress(AttributeError):
            _libc.mallopt(_M_TRIM_THRESHOLD, most)
            _libc.mallopt(_M_MMAP_THRESHOLD, _MOST_MMAP_THRESHOLD)


def erase_variable(name: str) -> None:
    """Remove an environment variable, and overwrite its value where ``/proc`` shows it."""
    if place := _libc.getenv(os.fsencode(name)):
        ctypes.memset(place, 0, len(ctypes.string_at(place)))
    os.environ.pop(name, None)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def children(pid: int) -> list[int]:
    """Return the process ids of the living children of all threads of a process.

    The process and its threads may end meanwhile.
    """
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                found.extend(map(int, (task / "children").read_text().split()))
    return found


def number_after(label: bytes, file: Path) -> int | None:
    """Return the number behind a label in a file of the kernel; None: there is none."""
    with suppress(OSError, ValueError, IndexError):
        return int(file.read_bytes().partition(label)[2].split(maxsplit=1)[0])
    return None


def peak_bytes(pid: int) -> int:
    """Return the highest resident memory of a process since the last `reset_peak`; 0: gone."""
    return (number_after(b"VmHWM:", Path(f"/proc/{pid}/status")) or 0) << 10


def reset_peak(pid: int | str) -> bool:
    """Let `peak_bytes` and ``ru_maxrss`` of a process begin anew; return whether that worked."""
    try:
        fd = os.open(f"/proc/{pid}/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.write(fd, b"5") == 1
    except OSError:
        return False
    finally:
        os.close(fd)


def descendants(pid: int) -> list[int]:
    """Return the process ids of all living descendants, parents before their children."""
    found = children(pid)
    for child in found:  # it grows while it is walked through
        found.extend(one for one in children(child) if one not in found)
    return found


def is_resource_tracker(pid: int) -> bool:
    """Say whether a process is a resource tracker of `multiprocessing` or of joblib."""
    with suppress(OSError):
        return b"resource_tracker import main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False
