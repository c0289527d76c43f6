"""What may happen to a driver at any file operation, done at the n-th."""

from __future__ import annotations

import errno
import os
import signal
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HOW = ("kill", "interrupt", "interrupts", "EIO", "ENOSPC")
"""SIGKILL; one Ctrl-C; one at each operation from then on; one that fails; a full disk."""
WRITES = ("write", "pwrite")
OTHERS = ("fsync", "fdatasync", "replace", "unlink", "ftruncate", "open", "mkdir")
REAL = {name: getattr(os, name) for name in (*WRITES, *OTHERS)}


class Reaper:
    """Counts operations on files in the main thread, and strikes in the middle of the n-th.

    Parameters
    ----------
    nth
        Which one.
    how
        What happens then.
    note
        A file that is made when it does.
    begin
        Counting begins with the first write that has this in it.

    """

    def __init__(self, nth: int, how: str, note: Path, begin: bytes = b"") -> None:
        self._left = nth
        self._how = how
        self._note = note
        self._begin = begin
        for name, real in REAL.items():
            setattr(os, name, partial(self._step, name, real))

    def _step(self, name: str, real: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if self._begin and name in WRITES and self._begin in bytes(given[1]):
            self._begin = b""
        if self._begin or threading.current_thread() is not threading.main_thread():
            return real(*given, **named)
        self._left -= 1
        if self._left == 0:
            os.close(REAL["open"](self._note, os.O_CREAT | os.O_WRONLY))
        match self._how:
            case "kill" if self._left == 0:
                _half(name, real, *given)
                os.kill(os.getpid(), signal.SIGKILL)
            case "EIO" if self._left == 0:
                _half(name, real, *given)
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            case "ENOSPC" if self._left <= 0 and _takes_room(name, given):
                _half(name, real, *given)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = real(*given, **named)
        if (self._how == "interrupt" and self._left == 0) or (
            self._how == "interrupts" and self._left <= 0
        ):
            os.kill(os.getpid(), signal.SIGINT)
        return done


def _half(name: str, real: Callable[..., Any], *given: Any) -> None:
    """Do half of a write."""
    if name in WRITES:
        fd, piece, *place = given
        real(fd, memoryview(piece)[: (len(piece) + 1) // 2], *place)


def _takes_room(name: str, given: tuple[Any, ...]) -> bool:
    return name in {*WRITES, "mkdir"} or (name == "open" and bool(given[1] & os.O_CREAT))
