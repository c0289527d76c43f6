"""Packages that a zygote imports once, before it forks agents; and why it must not keep one.

A fork has one thread, and an agent keeps no descriptor of its zygote. So a package that starts a
thread or a process when it is imported, or keeps a device, a connection or a file open, is broken
in a fork, and cannot be taken out of the zygote again: the zygote starts anew without it. So it
does without one whose import does not end: where an agent imports it, the timeouts of `init` count.
"""

from __future__ import annotations

import importlib
import os
import signal
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from daskprs._system import linux

if TYPE_CHECKING:
    from collections.abc import Collection

IMPORT_TIMEOUT_S = 120.0
"""Seconds for the import of one package, even on a busy machine."""
AGAIN_S = 1.0
"""Seconds after which an import that goes on in spite of its timeout is interrupted again."""
FDS = "/proc/self/fd"
HARMLESS = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/shm/")  # noqa: S108 - names, not places to write to


class PreloadError(Exception):
    """A package of `preload` cannot be imported here."""


class KeptOutError(Exception):
    """A package must not be imported before a fork; its arguments are its name and the reason."""


class _Held(NamedTuple):
    descriptors: dict[int, str]
    devices: frozenset[str]
    """Devices that are mapped into memory, as their descriptors may be closed."""
    children: frozenset[int]


def import_once(names: Collection[str]) -> None:
    """Import packages in a process that forks.

    Raise `PreloadError` if one of them cannot be imported, and `KeptOutError` if one has done what
    a fork does not survive, or its import has not ended in time.
    """
    threads = _threads_after_fork() if names else 0
    for name in names:
        before = _state()
        try:
            _import_in_time(name)
        except KeptOutError:
            raise
        except BaseException as error:
            msg = f"{name} cannot be imported: {type(error).__name__}: {error}"
            raise PreloadError(msg) from error
        if reason := _reason(before, threads):
            raise KeptOutError(name, reason)


def _import_in_time(name: str) -> None:
    """Import a package; raise `KeptOutError` if that takes too long, whatever it makes of it.

    Native code that takes no signals is ended by the owner of the zygote.
    """
    late = KeptOutError(name, f"its import takes longer than {IMPORT_TIMEOUT_S:g} s")

    def interrupt(*_: object) -> None:
        raise late

    until_s = time.monotonic() + IMPORT_TIMEOUT_S
    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, IMPORT_TIMEOUT_S, AGAIN_S)
    try:
        importlib.import_module(name)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        if time.monotonic() >= until_s:
            raise late


def _reason(before: _Held, threads_before: int) -> str:
    """Return what an import has done since then that a fork does not survive; empty: nothing."""
    now = _state()
    opened = [place for fd, place in now.descriptors.items() if before.descriptors.get(fd) != place]
    devices = [place for place in opened if place.startswith("/dev/")]
    devices += sorted(now.devices - before.devices)
    if devices:
        return f"it opens {devices[0]}"
    if opened:
        kind = opened[0].partition(":[")[0]
        return f"it keeps a {kind} open" if ":[" in opened[0] else f"it keeps {opened[0]} open"
    if now.children - before.children:
        return "it starts a process"
    threads = _threads_after_fork() - threads_before
    if threads <= 0:
        return ""
    return "it starts a thread" if threads == 1 else f"it starts {threads} threads"


def _state() -> _Held:
    descriptors = {}
    for fd in os.listdir(FDS):  # noqa: PTH208 - numbers
        with suppress(OSError):  # the one that lists them
            descriptors[int(fd)] = os.readlink(f"{FDS}/{fd}")  # noqa: PTH115 - a text
    kept = {fd: place for fd, place in descriptors.items() if not place.startswith(HARMLESS)}
    maps = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    mapped = {line.split(maxsplit=5)[5] for line in maps if " /dev/" in line}
    devices = {place for place in mapped if not place.startswith(HARMLESS)}
    return _Held(kept, frozenset(devices), frozenset(linux.children(os.getpid())))


def _threads_after_fork() -> int:
    """Return the number of threads beside this one that are still there after a fork.

    OpenBLAS ends its threads before each fork, and starts them again when it needs some.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of what is asked for here
        pid = os.fork()
    if pid == 0:
        os._exit(0)
    threads = len(os.listdir("/proc/self/task")) - 1  # noqa: PTH208 - numbers
    os.waitpid(pid, 0)
    return threads
