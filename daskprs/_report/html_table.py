"""Names and texts as an HTML table, for notebooks and for what they are exported to."""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterable

_CELL = "text-align:left;vertical-align:top;white-space:pre-wrap"
_TITLE = "text-align:left;white-space:nowrap;font-weight:bold"


def table_of(caption: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return rows of a name and a text as an HTML table; paths of files that exist are links.

    Each rule stands in the element that it is for, since an exported notebook has no style sheets.
    """
    body = "".join(
        f"<tr><th style='{_CELL}'>{html.escape(name)}</th>"
        f"<td style='{_CELL}'>{_linked(text)}</td></tr>"
        for name, text in rows
    )
    title = f"<caption style='{_TITLE}'>{html.escape(caption)}</caption>"
    return f"<table>{title}{body}</table>"


def _linked(text: str) -> str:
    """Return a text, with a link if it is the path of a file or a folder.

    A notebook server shows only files below the folder that the notebook is in, and by paths
    relative to it.
    """
    shown = html.escape(text)
    try:
        path, here = Path(text), Path.cwd()
        if not path.is_absolute() or not path.exists():
            return shown
    except (OSError, ValueError):  # a text that cannot be a path, or no working directory
        return shown
    target = quote(str(path.relative_to(here))) if path.is_relative_to(here) else path.as_uri()
    return f"<a href='{html.escape(target, quote=True)}' target='_blank'>{shown}</a>"
