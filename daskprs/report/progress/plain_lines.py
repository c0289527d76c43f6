"""Progress in a log file: a plain line now and then."""

from __future__ import annotations

from typing import IO

from daskprs.report.progress.text import View, progress_text

FIRST_LINE_S = 10.0
SLOWEST_LINE_S = 300.0
SLOWER = 1.5
"""Factor by which each pause is longer than the one before."""


class PlainLines:
    """Writes a line after ten seconds, then after ever longer pauses, and at the end."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._next_s = self._pause_s = FIRST_LINE_S

    def show(self, view: View) -> None:
        """Write a line if it is time for one."""
        elapsed_s = view.stood.elapsed_s
        if elapsed_s >= self._next_s:
            self._pause_s = min(SLOWEST_LINE_S, self._pause_s * SLOWER)
            self._next_s = elapsed_s + self._pause_s
            self.say(progress_text(view))

    def say(self, text: str) -> None:
        """Write a line."""
        self._stream.write(f"daskprs: {text}\n")
        self._stream.flush()

    def end(self, view: View | None) -> None:
        """Write the last state."""
        if view is not None:
            self.say(progress_text(view))
