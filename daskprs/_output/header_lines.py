"""Header lines of frames that become text: what they are compared by, with or without a header."""

from __future__ import annotations

import csv
import io

OTHER_COLUMNS = "\0"
"""Stands between two header lines, if frames of one mini-batch have different columns."""
SERIES = "\1"
"""The label of the column of a Series in lines without a header, whatever the name of the Series.

This name is often a row's label or a key. Such lines agree with those of all frames of one column.
"""
SERIES_LINE = f"{SERIES}\n"
MOST_SHOWN = 200
"""Characters of a header line that a message shows."""
BEFORE = 20
"""Characters shown before the first difference of two long header lines."""


def are_alike(one: str, other: str, separator: str) -> bool:
    """Say whether lines below these two header lines have the same columns."""
    if one == other:
        return True
    if SERIES_LINE not in (one, other):
        return False
    rows = (csv.reader(io.StringIO(line, newline=""), delimiter=separator) for line in (one, other))
    return all(len(next(row, ())) == 1 for row in rows)


def different_columns(who: str, one: str, other: str, then: str = "") -> str:
    """Return the message that frames with these header lines have different columns.

    `who` returned the frames, and `then` says what happens to their rows.
    """
    start = 0
    if max(len(one), len(other)) > MOST_SHOWN:
        same = zip(one, other, strict=False)
        places = (place for place, (mine, its) in enumerate(same) if mine != its)
        start = max(0, next(places, min(len(one), len(other))) - BEFORE)
    return (
        f"{who} returned frames with different columns: {_shown(one, start)} and "
        f"{_shown(other, start)}. {then}Return the same columns, in the same order, from each "
        "run(). Lines of other forms can be a list of text."
    )


def _shown(header: str, start: int) -> str:
    """Return a part of a header line, for a message."""
    if header == SERIES_LINE:
        return "a Series"
    line, stop = header.rstrip(), start + MOST_SHOWN
    return f"{'…' if start else ''}{line[start:stop]!r}{'…' if len(line) > stop else ''}"
