"""Ctrl-C, held back where a step and the knowledge of it must not be parted.

Whatever makes a `KeyboardInterrupt` of a signal is meant: Python's own handler of SIGINT, and
those that the command line gives SIGTERM and SIGHUP. Only the main thread is interrupted so; in
any other nothing has to be done.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Iterator

    Handler = Callable[[int, types.FrameType | None], Any]

INTERRUPTING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def held_back() -> Iterator[None]:
    """Hold back signals during the block, and handle them at its end.

    For steps of milliseconds at most: a second Ctrl-C waits as well.
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
