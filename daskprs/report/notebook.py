"""Progress in a notebook: an output that is updated in place, without widgets."""

from __future__ import annotations

import html
import importlib
import sys
from collections import deque
from typing import Any

from daskprs.report.progress_text import View, fraction_done, progress_text

AGAIN_AFTER_S = 1.0
LINES_KEPT = 20


def in_notebook() -> bool:
    """Return whether this process is a notebook kernel, without importing IPython."""
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


class NotebookDisplay:
    """One output of the running cell, as HTML, with text where HTML cannot be shown."""

    def __init__(self) -> None:
        display: Any = importlib.import_module("IPython.display")
        self._handle = display.display({"text/plain": ""}, raw=True, display_id=True)
        self._lines_above: deque[str] = deque(maxlen=LINES_KEPT)
        self._again_s = 0.0
        self._view: View | None = None

    def show(self, view: View) -> None:
        """Redraw the output, at most once a second."""
        self._view = view
        if view.stood.elapsed_s >= self._again_s:
            self._again_s = view.stood.elapsed_s + AGAIN_AFTER_S
            self._draw()

    def say(self, text: str) -> None:
        """Add a permanent line above the live one."""
        self._lines_above.append(text)
        self._draw()

    def end(self, view: View | None) -> None:
        """Draw the last state."""
        self._view = view or self._view
        self._draw()

    def _draw(self) -> None:
        lines = list(self._lines_above)
        shown = [html.escape(line) for line in lines]
        if self._view is not None:
            words, share = progress_text(self._view), fraction_done(self._view)
            bar = "" if share is None else f"<progress value='{share:.4f}' max='1'></progress> "
            lines.append(words)
            shown.append(bar + html.escape(words))
        page = "".join(f"<div style='white-space:pre-wrap'>{line}</div>" for line in shown)
        bundle = {"text/plain": "\n".join(lines), "text/html": page}
        self._handle.update(bundle, raw=True)
