"""Progress in a terminal: two lines that are drawn again and again."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from typing import IO, TYPE_CHECKING
from weakref import WeakValueDictionary

from rich.console import Console
from rich.live import Live
from rich.text import Text

from daskprs._report.progress_text import at_work_text, counts_text, fraction_done, now_text
from daskprs._system.standard_streams import is_terminal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from daskprs._report.job_view import View
    from daskprs._report.progress_bar import Watched

AGAIN_AFTER_S = 0.2
SHARE_OF_BAR = 5
"""The bar takes this fraction (1/5) of the columns, whatever stands beside it …"""
WIDEST_BAR = 40
NARROWEST_BAR = 8
"""… and has no room in a terminal where it would be narrower than this."""
SHARE = " 100 % "
"""A text as wide as the percentage beside the bar."""


def _lines(texts: Iterable[Text]) -> Text:
    return Text("\n", no_wrap=True, overflow="crop").join(texts)


class _Screen:
    """The live lines of all jobs that a program shows in one terminal, one job below another.

    Each of two programs of rich would else erase the lines of the other one. Jobs that
    `daskprs.start` has begun are shown from several threads.
    """

    def __init__(self, stream: IO[str]) -> None:
        self.console = Console(file=stream, highlight=False, force_jupyter=False)
        self._lock = threading.Lock()
        self._live: Live | None = None
        self._drawn: dict[LiveLines, Text] = {}
        self.is_shared = False
        """Whether it has shown several jobs since it last showed none."""

    def draw(self, lines: LiveLines, text: Text) -> None:
        """Draw the lines of a job anew."""
        with self._lock:
            self._drawn[lines] = text
            self.is_shared |= len(self._drawn) > 1
            self._refresh()

    def erase(self, lines: LiveLines) -> None:
        """Draw the lines of a job no more."""
        with self._lock:
            if self._drawn.pop(lines, None) is not None:
                self._refresh()

    def _refresh(self) -> None:
        if self._live is None:
            self._live = Live(
                console=self.console,
                auto_refresh=False,
                transient=True,
                # What other code prints meanwhile goes above the lines, if it goes to a terminal.
                redirect_stdout=is_terminal(sys.stdout),
            )
            self._live.start()
        if self._drawn:
            self._live.update(_lines(self._drawn.values()), refresh=True)
        else:
            self._live.stop()
            self._live = None
            self.is_shared = False


_screens: WeakValueDictionary[IO[str], _Screen] = WeakValueDictionary()
_making = threading.Lock()


def _screen_of(stream: IO[str]) -> _Screen:
    """Return the screen of a stream, the same for all jobs."""
    stream = getattr(stream, "rich_proxied_file", stream)  # that of another job stands in its place
    with _making:
        screen = _screens.get(stream) or _Screen(stream)
        _screens[stream] = screen
    return screen


class LiveLines:
    """Two lines in a terminal that are drawn again and again, and other lines above them.

    The first has the bar and the counts, the second what happens now. Where several jobs are shown,
    the second one begins with the name of the job.
    """

    def __init__(self, stream: IO[str], name: str = "") -> None:
        self._stream = stream
        self._name = name
        self._screen = _screen_of(stream)
        self._again_s = 0.0

    def show(self, watched: Watched) -> None:
        """Redraw the lines, unless they were just drawn."""
        if watched.elapsed_s < self._again_s or (view := watched.view()) is None:
            return
        self._again_s = watched.elapsed_s + AGAIN_AFTER_S
        room = self._room - len(self._who)
        present = now_text(view, room) or at_work_text(view)[: max(0, room)]
        self._screen.draw(self, _lines([self._drawn(view), Text(self._who + present)]))

    def say(self, text: str) -> None:
        """Write above the lines."""
        lines = text.replace("\n", f"\n{self._who}")
        self._screen.console.print(self._who + lines, markup=False, soft_wrap=True)

    def end(self, view: View | None) -> None:
        """Replace the live lines by an ordinary line with the last state."""
        who = self._who
        self._screen.erase(self)
        if view is not None:
            self._screen.console.print(Text(who).append(self._drawn(view, len(who))))

    @property
    def _who(self) -> str:
        return f"{self._name}: " if self._name and self._screen.is_shared else ""

    @property
    def _room(self) -> int:
        """The number of columns that a line may use.

        A longer line would wrap, and could not be redrawn in place. The terminal's size counts: an
        exported COLUMNS may belong to another window.
        """
        columns = self._screen.console.width
        with suppress(OSError):
            columns = min(columns, os.get_terminal_size(self._stream.fileno()).columns or columns)
        return columns - 1  # some terminals wrap after the last column

    def _drawn(self, view: View, taken: int = 0) -> Text:
        """Return bar and counts, with the bar in the same place each time."""
        room, share = self._room - taken, fraction_done(view)
        bar = min(WIDEST_BAR, room // SHARE_OF_BAR)
        text = Text(no_wrap=True, overflow="crop")
        if share is not None and bar >= NARROWEST_BAR:
            full = int(share * bar)
            text.append("━" * full, style="green")
            text.append("━" * (bar - full), style="dim")
            text.append(f" {int(100 * share):3d} % ")
        return text.append(counts_text(view, room - len(text)))
