"""A job in a notebook: one table, without widgets, that is readable when exported."""

from __future__ import annotations

import contextvars
import html
import importlib
import sys
from collections import deque
from typing import TYPE_CHECKING, Any

from daskprs._report.html_table import table_of
from daskprs._report.progress_text import fraction_done, progress_text

if TYPE_CHECKING:
    from daskprs._folders.job_folder import JobFolder
    from daskprs._report.job_view import View
    from daskprs._report.progress_bar import Watched

AGAIN_AFTER_S = 1.0
LINES_KEPT = 20
OUTPUT_LINES_KEPT = 200
OUTPUT_LINES_OF_TEXT = 20
"""Lines of the script that stay where HTML cannot be shown, and does not scroll."""


def in_notebook() -> bool:
    """Return whether this process is a notebook kernel, without importing IPython."""
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


class NotebookDisplay:
    """One output of the cell that runs now, as HTML, with text where HTML cannot be shown.

    Later cells may run while it changes. Then a change is a message of the cell that runs, since
    `nbconvert` drops those of a cell that has ended. The id of the output leads to its own cell.
    """

    def __init__(self, folder: JobFolder) -> None:
        display: Any = importlib.import_module("IPython.display")
        self._handle = display.display({"text/plain": ""}, raw=True, display_id=True)
        self._folder = folder
        self._said: deque[str] = deque(maxlen=LINES_KEPT)
        self._output: deque[str] = deque(maxlen=OUTPUT_LINES_KEPT)
        self._again_s = 0.0
        self._view: View | None = None

    def show(self, watched: Watched) -> None:
        """Redraw the output, at most once a second."""
        if watched.elapsed_s >= self._again_s:
            self._again_s = watched.elapsed_s + AGAIN_AFTER_S
            self._view = watched.view()
            self._draw()

    def say(self, text: str) -> None:
        """Add a permanent line."""
        self._said.append(text)
        self._draw()

    def output(self, lines: list[str]) -> None:
        """Add lines of the script, of which the last ones stay."""
        self._output.extend(lines)
        self._draw()

    def end(self, view: View | None) -> None:
        """Draw the last state."""
        self._view = view or self._view
        self._draw()

    def _draw(self) -> None:
        words = [] if self._view is None else [progress_text(self._view)]
        text = [*list(self._output)[-OUTPUT_LINES_OF_TEXT:], *self._said, *words]
        bundle = {"text/plain": "\n".join(text), "text/html": self._page()}
        # In a context of its own, where the kernel takes the cell that runs: the context of a job's
        # thread is that of the cell which has started it.
        contextvars.Context().run(self._handle.update, bundle, raw=True)

    def _page(self) -> str:
        """Return progress, messages and the place of the logs as a table, and the output below."""
        rows = [("", line) for line in self._said]
        if self._view is not None:
            rows.insert(0, ("progress", progress_text(self._view)))
        page = table_of(
            f"daskprs job {self._folder.path.name}", [*rows, ("logs", str(self._folder.logs))]
        )
        share = None if self._view is None else fraction_done(self._view)
        if share is not None:
            page = f"<progress value='{share:.4f}' max='1' style='width:20em'></progress>{page}"
        if self._output:
            lines = html.escape("\n".join(self._output))
            style = "max-height:20em;overflow:auto;white-space:pre-wrap"
            page += f"<pre style='{style}'>{lines}</pre>"
        return page
