"""The tables of a report, whose rows do not grow in number with the job."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from daskprs._report.humanize import counted, duration, rounded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from daskprs._page.causes import Cause
    from daskprs._page.contents import Contents

MOST_ROWS = 20
FEW_TIMES = 2
"""Times from which on it says something that a cause comes on one node only."""
MOST_CHARS = 300

Value = str | int | float | None


class Table(NamedTuple):
    """A table: its values are texts and numbers, those of one column of one kind.

    A table without rows has nothing to say.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Value, ...]]
    note: str = ""


def figures_of(contents: Contents) -> Iterator[tuple[str, str]]:
    """Yield the figures of a job, each with its name."""
    standing, planned = contents.standing, contents.standing.planned
    counts = standing.mini_batches
    yield "mini-batches", "not all known yet" if planned is None else f"{planned:,}"
    yield "of them done", f"{counts.succeeded:,}"
    yield "failed", f"{counts.failed:,}"
    if contents.waiting:
        yield "not done yet", f"{contents.waiting:,}"
    yield f"{standing.unit}s done", f"{standing.items.succeeded:,}"
    if failed := standing.items.failed - standing.not_returned:
        yield f"{standing.unit}s failed", f"{failed:,}"
    if standing.not_returned:
        yield f"fewer {standing.unit}s returned", f"{standing.not_returned:,}"
    yield "time", duration(contents.elapsed_s)
    rate = standing.items.succeeded / contents.elapsed_s
    yield f"{standing.unit}s per second", rounded(rate)
    yield "processes", f"{len(contents.figures.lives):,}"
    if contents.deaths:
        yield "of them died", f"{contents.deaths:,}"
    if contents.attempts_failed:
        yield "failed attempts", f"{contents.attempts_failed:,}"
    yield from standing.recorded


def shown(value: Value) -> str:
    """Return a value of a table for people; nothing where it is unknown."""
    if isinstance(value, str):
        return value
    if value is None or math.isnan(value):
        return ""
    return f"{value:,}" if isinstance(value, int) else rounded(value)


def causes(contents: Contents) -> Table:
    """Return what attempts, processes and rows failed by."""
    rows: list[tuple[Value, ...]] = [
        (
            short(one.error),
            one.attempts,
            one.given_up,
            short(one.where + _only_on(one, contents)),
            one.replay(contents.standing.replay),
        )
        for one in contents.causes[:MOST_ROWS]
    ]
    columns = ("error", "times", "given up", "first in", "to run it again")
    left = len(contents.causes) - MOST_ROWS
    notes = [f"and {counted(left, 'cause')} more"] if left > 0 else []
    if contents.others:
        notes.append(f"and {counted(contents.others, 'failure')} by still other causes")
    return Table("Failures by cause", columns, rows, ", ".join(notes))


def _only_on(cause: Cause, contents: Contents) -> str:
    """Return the node of a cause that has come several times, and on one of several nodes only."""
    if cause.attempts < FEW_TIMES or len(cause.nodes) != 1 or len(contents.figures.nodes) == 1:
        return ""
    return f"; only on node {next(iter(cause.nodes))}"


def slowest(contents: Contents) -> Table:
    """Return the mini-batches that took longest."""
    rows: list[tuple[Value, ...]] = [
        (
            *(one.mini_batch, one.elapsed_s, one.load_s, one.run_s),
            *(one.items, short(one.label), one.process),
        )
        for one in contents.figures.table.slowest
    ]
    unit = f"{contents.standing.unit}s"
    columns = ("mini-batch", "seconds", "loading", "run()", unit, "input", "process")
    return Table("Slowest", columns, rows)


def processes(contents: Contents) -> Table:
    """Return the seconds of each process, or of several together, by what they did."""
    rows: list[tuple[Value, ...]] = []
    for one in contents.figures.rows:
        seconds = (round(float(np.sum(each)), 3) for each in one.spent)
        rows.append((one.name, *seconds, len(one.deaths)))
    names = ("process", "run() s", "loading s", "formatting s", "init() s", "alive s", "died")
    return Table("The same as a table", names, rows)


def nodes(contents: Contents) -> Table:
    """Return the attempts on each node, where there are several."""
    found = [*contents.figures.nodes]
    # Those with the most failures first: one node that lacks what others have is to be seen.
    found.sort(
        key=lambda one: (-(one.failed + one.not_ready) / max(1, one.attempts), -one.not_ready)
    )
    rows = [(f"node {one.node}", *one[1:]) for one in found[:MOST_ROWS]] if len(found) > 1 else []
    columns = (
        *("node", "host", "processes", "not ready", "attempts", "failed"),
        "median seconds in run()",
    )
    left = len(found) - MOST_ROWS
    return Table("Nodes", columns, rows, f"and {counted(left, 'node')} more" if left > 0 else "")


def runs(contents: Contents) -> Table:
    """Return the last runs of the job, where there were several."""
    work, rows = contents.figures.work, []
    for number in range(max(0, len(work.begins) - MOST_ROWS), len(work.begins)):
        begun = datetime.fromtimestamp(float(work.begins[number]), UTC)
        took = duration(float(work.ends[number] - work.begins[number]))
        rows.append((number + 1, f"{begun:%Y-%m-%d %H:%M:%S}", took))
    return Table("Runs", ("run", "began (UTC)", "took"), rows if len(rows) > 1 else [])


def call(contents: Contents) -> Table:
    """Return the options of the last run, and the versions of its packages."""
    record = contents.figures.record
    rows = [(name, short(value)) for name, value in record.options.items()]
    rows += [("versions", record.versions)] if record.versions else []
    return Table("The call", ("option", "value"), rows)


def short(text: str) -> str:
    """Return a text as one line, cut where it is long."""
    return cut(" ".join(text.split()), MOST_CHARS)


def cut(text: str, most: int) -> str:
    """Return a text, cut if it has more than `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
