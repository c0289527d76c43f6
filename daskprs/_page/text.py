"""The report as text, for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from daskprs._page.process_rows import shares_of
from daskprs._page.tables import causes, cut, figures_of, nodes, short, shown, slowest
from daskprs._report.humanize import rounded
from daskprs._system.standard_streams import without_escapes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs._page.contents import Contents
    from daskprs._page.tables import Table

MOST_CAUSES = 5
MOST_SLOW = 5
MOST_LINES = 12
WIDTH = 100


def text_of(contents: Contents) -> str:
    """Return a report as text: the verdict first, then the cause, then where the time went."""
    return without_escapes("\n".join(_lines(contents)))


def _lines(contents: Contents) -> Iterator[str]:
    standing = contents.standing
    yield f"{contents.figures.record.script or contents.folder.path.name}: {standing.status}"
    yield standing.verdict
    if standing.way_on:
        yield f"To go on: {standing.way_on}"
    yield from _headline(contents)
    told = (*contents.hints, *standing.advice)
    if told:
        yield ""
        yield "What the figures show:"
        yield from (f"  - {text}" for text in told)
    table = causes(contents)
    if len(table.rows) > 1:
        yield from _table(table, MOST_CAUSES)
    yield ""
    yield ", ".join(f"{name}: {text}" for name, text in figures_of(contents))
    if shares := shares_of(contents.figures.rows):
        each = (f"{share:.0%} {name}" for name, share in shares.items())
        yield f"Time of the processes: {', '.join(each)}"
    run_s = contents.run_seconds()
    if len(run_s):
        half, most, longest = map(rounded, np.quantile(run_s, [0.5, 0.95, 1.0]))
        yield f"Seconds in run(): median {half}, 95 % within {most}, at most {longest}"
    yield from _table(nodes(contents), MOST_SLOW)
    yield from _table(slowest(contents), MOST_SLOW)
    yield from _messages(contents)


def _headline(contents: Contents) -> Iterator[str]:
    headline = contents.headline
    if headline is None:
        return
    yield ""
    yield f"First cause: {short(headline.error)}"
    yield f"  in {headline.where}"
    if headline.paths:
        yield f"  {headline.files}"
    lines = headline.evidence.splitlines()
    cut = ["…"] if len(lines) > MOST_LINES else []
    yield from (f"  {line}" for line in (*cut, *lines[-MOST_LINES:]))
    if headline.replay:
        yield f"To run it again: {headline.replay}"


def _messages(contents: Contents) -> Iterator[str]:
    record = contents.figures.record
    told = [*record.first, *record.last][-MOST_CAUSES:]
    if told:
        yield ""
        yield "Messages:"
        yield from (f"  {one.level}: {cut(one.text, 2 * WIDTH)}" for one in told)


def _table(table: Table, most: int) -> Iterator[str]:
    """Yield the first rows of a table, with columns as wide as what is in them."""
    if not table.rows:
        return
    cells = [[*table.columns]]
    cells += [[*map(shown, row)] for row in table.rows[:most]]
    widths = [min(WIDTH // 2, max(map(len, column))) for column in zip(*cells, strict=True)]
    yield ""
    yield f"{table.title}:"
    for *row, last in cells:  # the last column may be a command, which is never cut
        before = [cut(cell, width).ljust(width) for cell, width in zip(row, widths, strict=False)]
        yield f"  {'  '.join([*before, last])}".rstrip()
    if len(table.rows) > most:
        yield "  …"
    if table.note:
        yield f"  {table.note}"
