"""The place of a row of a published output among the commits of its job.

The journals say how many bytes of a file of text, and how many rows of a file of a data set, are of
each mini-batch. So the mini-batch of a row is found without its script and without its input.
"""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

import numpy as np

from daskprs._output.journal.commits import each
from daskprs._output.journal.recovery import publication_in_place, refuse_lost_records
from daskprs._output.spool import COPY_BYTES
from daskprs._system.regular_files import open_regular
from daskprs.errors import JobFolderError, JournalError, Option, OptionError

if TYPE_CHECKING:
    from daskprs._folders.job_folder import JobFolder
    from daskprs._output.journal.commits import Numbers
    from daskprs._output.journal.history import History, Publication, PublishedFile

MOST_NAMED = 3
QUOTE, LINE_FEED = b'"', b"\n"


class RowPlace(NamedTuple):
    """The mini-batch of a row, and where the row is among those of the mini-batch."""

    published: Publication
    file: str
    """The file of the data set that has the row, by its path in it; empty: there is one file."""
    commit: int
    """The number of the commit in the history."""
    row: int | None
    """The number of the row among those of the mini-batch; None where files have shared them out
    by their values."""
    rows: int
    """How many rows of the mini-batch are in the output."""


def place_of_row(
    folder: JobFolder, history: History, number: int, file: str | None = None
) -> RowPlace:
    """Return the place of a row of the output, or of one `file` of a data set, counted from 0.

    Raise `JobFolderError` when the job has no output, or what lies there is none that it has
    published; raise `OptionError` when there is no such row or file.
    """
    published = _published(folder, history)
    rows = history.standing(published.epoch)
    lengths = history.commits.column("text_length")[rows]
    refuse_lost_records(published, lengths)
    rows = rows[lengths > 0]
    if published.parts is None or published.is_single_file:
        _refuse_other_file(published, file)
    if published.parts is None:
        return _in_text(history, published, rows, number)
    name = None if file is None or published.is_single_file else _named(published, file)
    return _in_parts(published, rows, number, name)


def _published(folder: JobFolder, history: History) -> Publication:
    """Return the output that is in place."""
    if not history.forms.get("text"):
        msg = (
            f"the job in {folder} writes no output, since it was called with "
            f"{Option('output_action', 'summary_only')} or without {Option('output')}: only rows "
            f"of an output have an origin. {folder.attempts} has a row for each attempt."
        )
        raise JobFolderError(msg)
    if not history.publications:
        msg = (
            f"the job in {folder} has published no output yet. It does so when it is Completed: "
            f"go on with it by {Option('resume', value=True)}."
        )
        raise JobFolderError(msg)
    target = history.publications[-1].target
    published = publication_in_place(history, target)
    if published is None:
        what = "has changed since the job published it" if target.exists() else "is gone"
        msg = (
            f"{target} {what}, so its rows cannot be told apart. Put it back, or make it again: "
            f"daskprs verify {folder} shows what differs, and what to do."
        )
        raise JobFolderError(msg)
    return published


# ---- text ----


def _in_text(history: History, published: Publication, rows: Numbers, number: int) -> RowPlace:
    lengths, headers = (history.commits.column(name)[rows] for name in ("text_length", "header"))
    is_table, first = bool(history.forms.get("tabular")), 0
    with open_regular(published.target) as file:
        file.seek(published.header_bytes)
        for commit, length, header in each(rows, lengths, headers):
            count = _rows_in(file, length, has_quotes=is_table or header > 0)
            if number < first + count:
                return RowPlace(published, "", commit, number - first, count)
            first += count
    raise _no_row(published.target, number, first)


def _rows_in(file: IO[bytes], length: int, *, has_quotes: bool) -> int:
    """Read the text of a mini-batch, and count its rows: a cell of a table may have line feeds."""
    count, is_within = 0, False
    while length:
        piece = file.read(min(COPY_BYTES, length))
        if not piece:
            msg = f"{file.name} became shorter while it was read."
            raise JournalError(msg)
        length -= len(piece)
        if not has_quotes or not (is_within or QUOTE in piece):
            count += piece.count(LINE_FEED)
            continue
        # A quote within a cell is doubled, so that a line feed after an odd number is in a cell.
        codes = np.frombuffer(piece, np.uint8)
        quotes = np.cumsum(codes == ord(QUOTE)) + is_within
        count += int(np.count_nonzero((codes == ord(LINE_FEED)) & (quotes % 2 == 0)))
        is_within = bool(quotes[-1] % 2)
    return count


# ---- data sets ----


def _in_parts(published: Publication, rows: Numbers, number: int, name: str | None) -> RowPlace:
    first = before = 0
    for part in published.parts or ():
        of_part = rows[first : first + part.mini_batches]
        first += part.mini_batches
        for at, file in enumerate(part.files):
            if name not in (None, file.name):
                continue
            if number < before + file.rows:
                return _in_file(published, of_part, part.files, at, number - before)
            before += file.rows
    where = published.target if name is None else published.target / name
    raise _no_row(where, number, before)


def _in_file(
    published: Publication, of_part: Numbers, files: list[PublishedFile], at: int, number: int
) -> RowPlace:
    file = files[at]
    ends = [*accumulate(file.counts)]
    place = int(np.searchsorted(ends, number, side="right"))
    counts = [one.counts[place] for one in files]
    row = None
    if "/" not in file.name:  # folders stand for values: they share out the rows of a mini-batch
        row = number - (ends[place] - file.counts[place]) + sum(counts[:at])
    return RowPlace(published, file.name, int(of_part[place]), row, sum(counts))


def _named(published: Publication, given: str) -> str:
    """Return the name of a file in a data set, given by that, by its path or by its last part."""
    names = [file.name for part in published.parts or () for file in part.files]
    path, target = Path(given).resolve(), published.target.resolve()
    if path.is_relative_to(target):
        given = path.relative_to(target).as_posix()
    found = [one for one in names if one == given or one.endswith(f"/{given}")]
    found = [given] if given in found else found
    if len(found) == 1:
        return found[0]
    shown = ", ".join((found or names)[:MOST_NAMED])
    more = ", …" if len(found or names) > MOST_NAMED else ""
    what = "there are several" if found else "it is none of its files"
    msg = f": {what} in the data set {published.target}: {shown}{more}"
    raise OptionError(Option("file", given), msg)


def _refuse_other_file(published: Publication, file: str | None) -> None:
    """Refuse a file that is not the output, which is one file."""
    target = published.target
    if file is not None and Path(file).resolve() != target.resolve() and file != target.name:
        raise OptionError(Option("file", file), f": the output of the job is one file, {target}.")


def _no_row(where: Path, number: int, count: int) -> OptionError:
    has = (
        f"{where} has {count:,} row{'' if count == 1 else 's'}, numbered from 0."
        if count
        else f"{where} has no rows."
    )
    return OptionError(Option("output_row", number), f": {has}")
