"""Reports during the preparation of the input, which may take minutes without other events."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from daskprs.core.events import MessageLogged
from daskprs.report.humanize import duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from daskprs.report.listeners import Listeners

FIRST_AFTER_S = 3.0
LONGEST_S = 60.0
"""Maximum seconds between two notices; up to this, each pause is twice the one before."""


@contextmanager
def report_preparation(listeners: Listeners, how_far: Callable[[], str]) -> Iterator[None]:
    """Report the progress of the input's preparation from time to time.

    Parameters
    ----------
    listeners
        The listeners; during the preparation only this function's thread sends them events.
    how_far
        Returns the progress in a few words, or none.

    """
    over = threading.Event()
    thread = threading.Thread(
        target=_tell, args=(listeners, how_far, over), name="daskprs-preparation", daemon=True
    )
    started = False
    with suppress(RuntimeError):  # no more threads: the input is prepared without a word
        thread.start()
        started = True
    try:
        yield
    finally:
        over.set()
        if started:
            thread.join()


def _tell(listeners: Listeners, how_far: Callable[[], str], over: threading.Event) -> None:
    begun = time.monotonic()
    pause_s = FIRST_AFTER_S
    while not over.wait(pause_s):
        text = f"preparing the input for {duration(time.monotonic() - begun)}"
        more = how_far()
        listeners.tell(MessageLogged("notice", f"{text}: {more}" if more else text))
        pause_s = min(LONGEST_S, 2 * pause_s)
