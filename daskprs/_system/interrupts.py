"""Ctrl-C, held back where a step and the knowledge of it must not be parted.

Whatever makes a `KeyboardInterrupt` of a signal is meant: Python's own handler of SIGINT, and
those that the command line gives SIGTERM and SIGHUP. Only the main thread is interrupted so; in
any other nothing has to be done.

SIGTERM asks a job to end because its machine or its time ends, which is no wish to cancel it. Who
cancels a process of daskprs by SIGTERM makes a file first, which `cancelled_by` has named to it.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Iterator

    Handler = Callable[[int, types.FrameType | None], Any]

CANCEL_FILES = "DASKPRS_CANCEL_FILES"
"""The variable with the paths of files, one a line: the process is cancelled once one of them is
there."""
INTERRUPTING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


_hearing: list[Callable[[], bool]] = []
"""What hears SIGTERM instead of an interrupt: the loop of the job in this thread, if any."""


class Terminated(KeyboardInterrupt):
    """SIGTERM has ended the work, and nobody has cancelled it."""


def is_cancelled() -> bool:
    """Say whether this process was cancelled by whoever has started it."""
    files = os.environ.get(CANCEL_FILES, "").splitlines()
    return any(map(os.path.exists, files))


def cancelled_by(file: os.PathLike[str] | str) -> dict[str, str]:
    """Return the variables of a process that is cancelled by this file, or as this process is."""
    files = os.environ.get(CANCEL_FILES, "").splitlines()
    return {CANCEL_FILES: "\n".join([*files, str(file)])}


def sigterm_handler() -> Handler:
    """Return a handler of SIGTERM for this process; its forks end as if they had none."""
    return partial(_handle_sigterm, os.getpid())


def _handle_sigterm(owner: int, number: int, frame: types.FrameType | None) -> None:
    """Let the loop of a job end by itself, or interrupt what is done."""
    del frame
    if os.getpid() != owner:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        return
    if is_cancelled():
        raise KeyboardInterrupt
    if not (_hearing and _hearing[-1]()):
        raise Terminated


@contextmanager
def sigterm_heard_by(hear: Callable[[], bool]) -> Iterator[None]:
    """Call a function at SIGTERM within the block; an interrupt comes if it returns False."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _hearing.append(hear)
    try:
        yield
    finally:
        _hearing.pop()


@contextmanager
def sigterm_handled() -> Iterator[None]:
    """Handle SIGTERM within the block, where it would end the process without a word."""
    within = threading.current_thread() is threading.main_thread()
    if not within or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, sigterm_handler())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def held_back() -> Iterator[None]:
    """Hold back signals during the block, and handle them at its end.

    For steps of milliseconds at most, since a second Ctrl-C waits as well, and for the import of
    packages: one that is interrupted stays half imported, and no later import mends that.
    """
    came: list[Callable[[], Any]] = []
    try:
        with _handled_by(came.append):
            yield
    finally:
        for heed in came:
            heed()


class LateInterrupts:
    """Ignores the first Ctrl-C that comes when it is too late to cancel; the second one counts.

    It is too late when the work is done, so that an interrupt could only hide this.
    """

    def __init__(self, too_late: Callable[[], bool]) -> None:
        self.taken = False
        """Whether a late Ctrl-C was ignored."""
        self._too_late = too_late

    @contextmanager
    def ignored_once(self) -> Iterator[None]:
        """Ignore one late Ctrl-C within the block; an earlier one interrupts as usual."""
        with _handled_by(self._heed):
            yield

    def _heed(self, heed: Callable[[], Any]) -> None:
        """Let the real handler do what it does: it need not be one that interrupts."""
        try:
            heed()
        except KeyboardInterrupt:
            if self.taken or not self._too_late():
                raise
            self.taken = True


@contextmanager
def _handled_by(handle: Callable[[Callable[[], Any]], Any]) -> Iterator[None]:
    """Give `handle` what the handlers would have done, instead of doing it."""
    within = threading.current_thread() is threading.main_thread()
    before: dict[int, Handler] = {}

    def instead(real: Handler, number: int, frame: types.FrameType | None) -> None:
        heed = partial(real, number, frame)
        if within:
            handle(heed)
        else:  # another signal has kept this one's handler from being put back
            heed()

    try:
        for number in INTERRUPTING if within else ():
            real = signal.getsignal(number)
            if callable(real):  # neither ignored nor fatal
                before[number] = real
                signal.signal(number, partial(instead, real))
        yield
    finally:
        within = False
        for known, handler in before.items():
            signal.signal(known, handler)
