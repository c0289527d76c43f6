"""What is told while the input is prepared: nothing else happens then, for minutes perhaps."""

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
"""Each notice comes after twice the time of the one before, but not less often than this."""


@contextmanager
def report_preparation(listeners: Listeners, how_far: Callable[[], str]) -> Iterator[None]:
    """Tell from time to time that the input is being prepared, and how far that is.

    Parameters
    ----------
    listeners
        Told from a thread; nobody else tells them anything meanwhile.
    how_far
        Says more, in a few words or none.

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
