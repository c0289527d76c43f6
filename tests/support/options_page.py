"""The tables of the page of options, made from the table in `RunOptions`.

``python -m tests.support.options_page`` writes them anew.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from daskprs.options.option import GROUPS
from daskprs.options.run_options import TABLE, RunOptions
from tests.support.reference_page import filled

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "options.md"


def tables() -> dict[str, str]:
    """Return the table of each group of options."""
    defaults = {field.name: field.default for field in dataclasses.fields(RunOptions)}
    rows: dict[str, list[str]] = {group: [] for group in GROUPS}
    for name, row in TABLE.items():
        default = row.shown or f"`{defaults[name]!r}`"
        rows[row.group].append(f"| `{name}` | {default} | {row.help} |")
    head = ["| option | default | |", "|---|---|---|"]
    return {group: "\n".join([*head, *lines]) for group, lines in rows.items()}


def written(page: str) -> str:
    """Return the page with its tables as they ought to be."""
    return filled(page, tables())


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
