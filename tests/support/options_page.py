"""The tables of the page of options: the rows of `RunOptions`, with the texts of `parallel_run`.

``python -m tests.support.options_page`` writes them anew.
"""

from __future__ import annotations

from pathlib import Path

from daskprs.cli.options import DESCRIPTIONS
from daskprs.options.run_options import GROUPS, TABLE
from tests.support.reference_page import filled

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "options.md"


def tables() -> dict[str, str]:
    """Return the table of each group of options."""
    rows: dict[str, list[str]] = {group: [] for group in GROUPS}
    for name, row in TABLE.items():
        text, default = DESCRIPTIONS[name]
        rows[row.group].append(f"| `{name}` | {default or f'`{row.default!r}`'} | {text} |")
    head = ["| option | default | |", "|---|---|---|"]
    return {group: "\n".join([*head, *lines]) for group, lines in rows.items()}


def written(page: str) -> str:
    """Return the page with its tables as they ought to be."""
    return filled(page, tables())


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
