"""Progress in a terminal: two lines that are drawn again and again."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

from daskprs._report.progress_text import at_work_text, counts_text, fraction_done, now_text

if TYPE_CHECKING:
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


class LiveLines:
    """Two lines in a terminal that are drawn again and again, and other lines above them.

    The first has the bar and the counts, the second what happens now.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._console = Console(file=stream, highlight=False, force_jupyter=False)
        self._live: Live | None = None
        self._again_s = 0.0

    def show(self, watched: Watched) -> None:
        """Redraw the lines, unless they were just drawn."""
        if watched.elapsed_s < self._again_s or (view := watched.view()) is None:
            return
        self._again_s = watched.elapsed_s + AGAIN_AFTER_S
        if self._live is None:
            self._live = Live(
                console=self._console,
                auto_refresh=False,
                transient=True,
                # What other code prints meanwhile goes above the lines, if it goes to a terminal.
                redirect_stdout=sys.stdout.isatty(),
            )
            self._live.start()
        present = now_text(view, self._room) or at_work_text(view)[: self._room]
        both = Text("\n", no_wrap=True, overflow="crop").join([self._drawn(view), Text(present)])
        self._live.update(both, refresh=True)

    def say(self, text: str) -> None:
        """Write above the lines."""
        self._console.print(text, markup=False, soft_wrap=True)

    def output(self, lines: list[str]) -> None:
        """Write lines of the script above the line."""
        self.say("\n".join(lines))

    def end(self, view: View | None) -> None:
        """Replace the live lines by an ordinary line with the last state."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        if view is not None:
            self._console.print(self._drawn(view))

    @property
    def _room(self) -> int:
        """The number of columns that a line may use.

        A longer line would wrap, and could not be redrawn in place. The terminal's size counts: an
        exported COLUMNS may belong to another window.
        """
        columns = self._console.width
        with suppress(OSError):
            columns = min(columns, os.get_terminal_size(self._stream.fileno()).columns or columns)
        return columns - 1  # some terminals wrap after the last column

    def _drawn(self, view: View) -> Text:
        """Return bar and counts, with the bar in the same place each time."""
        room, share = self._room, fraction_done(view)
        bar = min(WIDEST_BAR, room // SHARE_OF_BAR)
        text = Text(no_wrap=True, overflow="crop")
        if share is not None and bar >= NARROWEST_BAR:
            full = int(share * bar)
            text.append("━" * full, style="green")
            text.append("━" * (bar - full), style="dim")
            text.append(f" {int(100 * share):3d} % ")
        return text.append(counts_text(view, room - len(text)))
