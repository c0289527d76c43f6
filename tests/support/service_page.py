"""The table of options on the page of the HTTP service, made from the command.

``python -m tests.support.service_page`` writes it anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from daskprs._serve.command import serve
from tests.support.filled_page import filled

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "service.md"


def rows() -> Iterator[str]:
    """Yield a line of the table for each option, with the help of the command line."""
    for one in serve.params:
        if not isinstance(one, click.Option):
            continue
        text, _, default = (one.help or "").partition(" Default: ")
        value = default.removesuffix(".") or (f"`{one.default}`" if one.show_default else "")
        name = f"{one.opts[0]} {one.metavar or ''}".strip()
        yield f"| `{name}` | {'required' if one.required else value} | {text.removesuffix('.')} |"


def written(page: str) -> str:
    """Return the page with its table as it ought to be."""
    return filled(
        page, {"options": "\n".join(["| option | default | |", "|---|---|---|", *rows()])}
    )


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
