"""Detection of the system limit that prevents a process, a thread, or an open or larger file."""

from __future__ import annotations

import errno
import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

CGROUPS = Path("/sys/fs/cgroup")
NO_THREAD = "can't start new thread"
"""The message of Python's RuntimeError."""
NO_ARROW_THREAD = "Failed to launch worker thread"
LINKS = 10
"""Maximum number of errors to examine in a chain of causes."""
NEAR = 8
"""A limit counts as reached within this distance: failed starts have freed a few by then."""
FEWER = "lower process_count_per_node"
ELSEWHERE = f"There, look at ulimit -u and at pids.max of the container: raise them, or {FEWER}."
"""Advice where the limits are those of another machine."""


class _Limit(NamedTuple):
    name: str
    allowed: int
    used: int
    unit: str
    raise_it: str

    def __str__(self) -> str:
        return f"{self.name} allows {self.allowed} {self.unit}, and {self.used} are in use"


def explain(error: BaseException, *, of_script: bool = False) -> str:
    """Return the limit that an error is due to, and the next step; empty for other errors.

    An error of a script may have other causes, such as a socket that does not block: a limit on
    processes is named only where it is reached, and memory is left to the script.
    """
    link: BaseException | None = error
    for _ in range(LINKS):
        if link is None:
            break
        limit = _explained(link, of_script=of_script)
        if limit:
            return limit
        link = link.__cause__ or link.__context__
    return ""


def _explained(error: BaseException, *, of_script: bool) -> str:
    code = error.errno if isinstance(error, OSError) else None
    if code == errno.EMFILE:
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return (
            f"RLIMIT_NOFILE allows {allowed} open files in a process, and all are in use. "
            f"Raise it (ulimit -n), or {FEWER}."
        )
    if code == errno.ENFILE:
        return "fs.file-max allows no more open files on this machine. Raise it (sysctl)."
    if code == errno.EFBIG:
        return largest_file()
    if not of_script and (code == errno.ENOMEM or isinstance(error, MemoryError)):
        return f"Memory is exhausted. Look at ulimit -v and the memory of the machine, or {FEWER}."
    if code == errno.EAGAIN or lacks_a_thread(error) or NO_ARROW_THREAD in str(error):
        return _on_processes(only_reached=of_script)
    return ""


def largest_file() -> str:
    """Return the limit on the size of a file, and the next step; empty without one."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if allowed == resource.RLIM_INFINITY:
        return ""
    return f"RLIMIT_FSIZE allows {allowed:,} bytes in a file. Raise it (ulimit -f)."


def lacks_a_thread(error: BaseException) -> bool:
    """Return whether Python raised this error because it could not start a thread."""
    return isinstance(error, RuntimeError) and NO_THREAD in str(error)


def _on_processes(*, only_reached: bool) -> str:
    limits = list(_limits())
    reached = [limit for limit in limits if limit.used + NEAR >= limit.allowed]
    if not reached and only_reached:
        return ""
    if not reached:
        known = "".join(f" {limit}." for limit in limits)
        return f"The system refuses another process or thread.{known} Raise its limit, or {FEWER}."
    said = "; ".join(map(str, reached))
    steps = ", ".join(dict.fromkeys(limit.raise_it for limit in reached))
    return f"{said}. Raise it ({steps}), or {FEWER}."


def _limits() -> Iterator[_Limit]:
    """Yield each limit on the processes and threads of this process."""
    unit = "processes and threads"
    with suppress(OSError, ValueError):
        allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
        if allowed != resource.RLIM_INFINITY:  # a thread takes 8 MB for its stack
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            taken = "MB of addresses in a process"
            yield _Limit("RLIMIT_AS", allowed >> 20, used >> 20, taken, "ulimit -v")
    with suppress(OSError):
        allowed, _ = resource.getrlimit(resource.RLIMIT_NPROC)
        if allowed != resource.RLIM_INFINITY:
            yield _Limit("RLIMIT_NPROC", allowed, _threads_of_user(), unit, "ulimit -u")
    for folder in _cgroups():
        with suppress(OSError, ValueError):  # "max" is not a number
            allowed = int((folder / "pids.max").read_text())
            used = int((folder / "pids.current").read_text())
            name = f"pids.max of the cgroup {folder}"
            yield _Limit(name, allowed, used, unit, "docker run --pids-limit, TasksMax of systemd")
    with suppress(OSError, ValueError, IndexError):
        used = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
        for name in ("threads-max", "pid_max"):
            allowed = int(Path("/proc/sys/kernel", name).read_text())
            yield _Limit(f"kernel.{name}", allowed, used, unit, f"sysctl kernel.{name}")


def _threads_of_user() -> int:
    """Return the number of threads of this process's user, as far as /proc shows them."""
    user, count = os.getuid(), 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if process.stat().st_uid == user:
                count += sum(1 for _ in (process / "task").iterdir())
    return count


def _cgroups() -> Iterator[Path]:
    """Yield the folder of the cgroup that counts processes, and those of its parents."""
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers in ("", "pids"):
                root = CGROUPS / controllers
                own = root / path.lstrip("/")
                yield own
                yield from (parent for parent in own.parents if parent.is_relative_to(root))
