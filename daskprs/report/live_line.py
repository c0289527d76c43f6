"""Progress in a terminal: one line that is drawn again and again."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import IO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from daskprs.report.progress_text import View, fraction_done, progress_text

AGAIN_AFTER_S = 0.2
BAR_WIDTH = 24
NARROWEST_BAR = 8
SHARE = " 100 % "
"""A text as wide as the percentage beside the bar."""


class LiveLine:
    """A line in a terminal that is drawn again and again, and other lines above it."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._console = Console(file=stream, highlight=False, force_jupyter=False)
        self._live: Live | None = None
        self._again_s = 0.0

    def show(self, view: View) -> None:
        """Redraw the line, unless it was just drawn."""
        if view.stood.elapsed_s < self._again_s:
            return
        self._again_s = view.stood.elapsed_s + AGAIN_AFTER_S
        if self._live is None:
            self._live = Live(
                console=self._console,
                auto_refresh=False,
                transient=True,
                # What other code prints meanwhile goes above the line, if it goes to a terminal.
                redirect_stdout=sys.stdout.isatty(),
            )
            self._live.start()
        self._live.update(self._drawn(view), refresh=True)

    def say(self, text: str) -> None:
        """Write above the line."""
        self._console.print(text, markup=False, soft_wrap=True)

    def output(self, lines: list[str]) -> None:
        """Write lines of the script above the line."""
        self.say("\n".join(lines))

    def end(self, view: View | None) -> None:
        """Replace the live line by an ordinary line with its last state."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        if view is not None:
            self._console.print(self._drawn(view))

    def _drawn(self, view: View) -> Text:
        """Return the view as a line that fits, with a bar where there is room for one.

        A longer line would wrap, and could not be redrawn in place. The terminal's size counts: an
        exported COLUMNS may belong to another window.
        """
        columns = self._console.width
        with suppress(OSError):
            columns = min(columns, os.get_terminal_size(self._stream.fileno()).columns or columns)
        room = columns - 1  # some terminals wrap after the last column
        words = progress_text(view, room)
        text = Text(no_wrap=True, overflow="crop")
        share = fraction_done(view)
        bar = min(BAR_WIDTH, room - len(words) - len(SHARE))
        if share is not None and bar >= NARROWEST_BAR:
            full = round(share * bar)
            text.append("━" * full, style="green")
            text.append("━" * (bar - full), style="dim")
            text.append(f" {int(100 * share):3d} % ")
        return text.append(words)
