"""Pages with tables that are made from the code, each between two comments with its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

BEGIN, END = "<!-- begin: {} -->", "<!-- end: {} -->"


def filled(page: str, made: Mapping[str, str]) -> str:
    """Return a page with tables in their places, which comments with their names mark."""
    for name, table in made.items():
        begin, end = BEGIN.format(name), END.format(name)
        before, _, rest = page.partition(begin)
        _, found, after = rest.partition(end)
        assert found, f"the page has no place for the table {name!r}: {begin} {end}"
        page = f"{before}{begin}\n\n{table}\n\n{end}{after}"
    return page
