"""Read the rows that `run` returned back from the typed spools of a job."""

from __future__ import annotations

import warnings
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from daskprs._folders.job_lock import epochs_of
from daskprs._folders.row_labels import RowLabels
from daskprs._folders.rows_seal import labels_seal, rows_seal
from daskprs._output.journal.history import History
from daskprs._output.rows.given_schema import schema_of
from daskprs._output.rows.result_tables import one_frame
from daskprs._output.rows.typed_rows import NAMED, NO_INDEX, decode
from daskprs._output.spool import OpenFiles, holds
from daskprs.errors import JournalError, Option

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping
    from pathlib import Path

    from daskprs._folders.job_folder import JobFolder
    from daskprs._output.journal.commits import CommitTable, Numbers
    from daskprs._output.journal.history import FailedRowsOf, LeftOut
    from daskprs._output.rows.typed_rows import RowNumbers, TypedPiece


def read_rows(folder: JobFolder, *, ignore_index: bool = False) -> pd.DataFrame | None:
    """Return the typed rows of a job in input order; None when the job kept none.

    If the input is a frame, rows get its labels, unless `ignore_index` is set. Rows that cannot be
    matched with rows of the frame are numbered from 0, with a warning.

    Raise `JournalError` when the typed spool or the row labels are damaged, or cannot be read here,
    and `ReturnTypeError` when `run` returned frames for some mini-batches and lists for others.
    """
    if not epochs_of(folder, folder.typed_spools):
        return None
    history = History(folder)
    epoch = None if ignore_index else history.labels
    labels = None
    if epoch is not None:
        labels = RowLabels(folder.labels(epoch), labels_seal(folder))
    matcher = None if labels is None else RowMatcher(labels.bounds, history.failed_rows)
    pieces = pieces_of(folder, history.commits, history.standing())
    joined = one_frame(pieces if matcher is None else matcher.passed(pieces))
    rows = no_rows(history.schema) if joined is None else joined
    if labels is not None and matcher is not None:
        _label(rows, labels, matcher, history.included)
    return rows


def no_rows(schema: str | None = None) -> pd.DataFrame:
    """Return a frame without rows, with the columns of the schema that the caller has given.

    Without a schema, it has none: those of the input need not be those of what `run` returns.
    """
    if schema is None:
        return pd.DataFrame()
    empty: pd.DataFrame = schema_of(schema).empty_table().to_pandas()
    return empty


def _label(
    rows: pd.DataFrame, labels: RowLabels, matcher: RowMatcher, included: tuple[str, ...]
) -> None:
    """Give returned rows the labels of their input rows, or warn that they have none."""
    places = matcher.finish()
    index = None if places is None else labels.of(places)
    if isinstance(index, pd.Index):
        rows.index = index
        return
    why = matcher.misfit if index is None else f"the index of the input has no pickle ({index})"
    instead = "set include_columns=['row_number']"
    if included:
        instead = f"match the rows by {', '.join(map(repr, included))}, which they have"
    step = f"Let run() keep the index of mini_batch, or {instead}"
    _warn_of_numbers(why, step, 5)


def warn_of_lost_labels(folder: JobFolder, count: int) -> None:
    """Warn if the numbers of `count` rows of a data set are not the labels of their input rows.

    If as many rows came back as went in, they are taken for the same rows in the same order.
    """
    if count and History(folder).unlabelled not in (None, count):
        next_step = "Keep the rows in the job folder, too, by keep_rows=True"
        _warn_of_numbers("a data set keeps no index", next_step, 4)


def _warn_of_numbers(why: str, next_step: str, stacklevel: int) -> None:
    msg = (
        f"to_pandas: the rows are numbered from 0 and lack the labels of the input: {why}. Do not "
        f"assign them to columns of the input. {next_step}, or accept the numbers by "
        "to_pandas(ignore_index=True)."
    )
    warnings.warn(msg, stacklevel=stacklevel)


def frame_of_each(
    mini_batches: Iterable[tuple[int, Iterator[TypedPiece]]],
) -> Iterator[pd.DataFrame]:
    """Yield the rows of each mini-batch that has some as one frame."""
    for index, pieces in mini_batches:
        frame = one_frame((index, piece) for piece in pieces)
        if frame is not None and len(frame):
            yield frame


def pieces_of(
    folder: JobFolder, commits: CommitTable, rows: Numbers
) -> Generator[tuple[int, TypedPiece]]:
    """Yield the typed pieces of these commits, each with the number of its mini-batch."""
    for index, pieces in pieces_of_each(folder, commits, rows):
        for piece in pieces:
            yield index, piece


def pieces_of_each(
    folder: JobFolder, commits: CommitTable, rows: Numbers
) -> Generator[tuple[int, Iterator[TypedPiece]]]:
    """Yield the number and the typed pieces of each mini-batch; take these before the next one."""
    path_of = partial(commits.spool, folder_of=folder.typed_spools)
    seal = rows_seal(folder)
    with closing(OpenFiles(path_of)) as files:
        for _, index, number, region in commits.regions(rows, "typed"):
            try:
                spool = files.get(number)
            except FileNotFoundError as error:
                raise _unreadable(index, path_of(number), "gone") from error
            if not holds(spool, region):
                raise _unreadable(index, path_of(number), "damaged")
            spool.seek(region.offset)
            what = f"the result of mini-batch {index} in {path_of(number)}"
            yield index, decode(spool, region.length, seal.of(spool), what)


def _unreadable(mini_batch: int, path: Path, how: str) -> JournalError:
    msg = (
        f"the typed rows of mini-batch {mini_batch} in {path} are {how}. Run the job again with "
        f"{Option('resume', value=True)}: what is {how} is done again."
    )
    return JournalError(msg)


class RowMatcher:
    """Matches returned rows with rows of the input.

    A mini-batch of n rows fits by position if it returned n rows without an index, or a frame of
    n rows with the index 0 to n - 1. Another frame fits through its index, if that is unnamed and
    holds different numbers out of 0 to n - 1. If each shorter frame has the index 0 to m - 1, the
    index does not show which rows are left: `reset_index` after a filter makes the same.

    Rows that have failed are no reason: it is known that the others are left. A search has called
    `run` for each range between those that it has found, so that each is looked at by itself.

    Parameters
    ----------
    bounds
        The first row of each mini-batch in the plan, and the end.
    failed
        What mini-batches lack, by number.

    """

    def __init__(self, bounds: Numbers, failed: Mapping[int, FailedRowsOf] | None = None) -> None:
        self.misfit = ""
        """Why returned rows cannot be matched; empty where they can."""
        self._bounds = bounds
        self._failed = failed or {}
        self._mini_batch = -1
        self._count = 0
        self._indexes: list[RowNumbers] = []
        self._places: list[Numbers] = []
        self._first_unclear: int | None = None
        self._is_clear = False

    def passed(self, pieces: Iterable[tuple[int, TypedPiece]]) -> Iterator[tuple[int, TypedPiece]]:
        """Take pieces, and pass them on."""
        for mini_batch, piece in pieces:
            self.add(mini_batch, piece)
            yield mini_batch, piece

    def add(self, mini_batch: int, piece: TypedPiece) -> None:
        """Take the next piece of a result; the pieces of a mini-batch follow one another."""
        if mini_batch != self._mini_batch:
            self._close()
            self._mini_batch = mini_batch
        length = len(piece.value)
        self._count += length
        if length and piece.kind == "frame":
            self._indexes.append(piece.numbers)

    def finish(self) -> Numbers | None:
        """Return the place of each row in the plan; None if rows cannot be matched."""
        self._close()
        if self._first_unclear is not None and not self._is_clear:
            self._refuse(
                f"each frame with fewer rows than its mini-batch (the first is that of mini-batch "
                f"{self._first_unclear}) has the index 0, 1, … as after reset_index, which does "
                "not say which rows are left"
            )
        if self.misfit:
            return None
        return np.concatenate([np.empty(0, np.int64), *self._places])

    def _close(self) -> None:
        """Match the rows of the mini-batch whose pieces have been taken."""
        count, indexes = self._count, self._indexes
        self._count, self._indexes = 0, []
        if not count or self.misfit:
            return
        if self._mini_batch + 1 >= len(self._bounds):
            self._refuse(f"the input has no mini-batch {self._mini_batch}")
            return
        first, stop = self._bounds[self._mini_batch : self._mini_batch + 2].tolist()
        total = stop - first
        if not indexes or any(isinstance(one, str) and one == NO_INDEX for one in indexes):
            self._match_by_position(first, count, total)
        else:
            self._match_by_index(first, count, total, indexes)

    def _match_by_position(self, first: int, count: int, total: int) -> None:
        found = [one for one in self._left_out if not one.is_named]
        has_returned_none = not len(_others(0, total, found))
        gone = [one for one in self._left_out if not one.has_rows]
        # Where all have failed, there are rows of nulls alone; if they failed again in a resume,
        # the record has them all at the last one. Whoever names a row may return one for it.
        lacks = [] if has_returned_none else gone
        for without in (lacks, [one for one in lacks if not one.is_named]):
            places = _others(0, total, without)
            if len(places) == count:
                self._places.append(places + first)
                return
        self._refuse(
            f"mini-batch {self._mini_batch} has {total} row{'' if total == 1 else 's'}, and its "
            f"result {count} without an index"
        )

    def _match_by_index(
        self, first: int, count: int, total: int, indexes: list[RowNumbers]
    ) -> None:
        numbers = _joined(indexes)
        if numbers is None or not _are_rows(numbers, total):
            self._refuse(self._why_not(indexes, count, total))
            return
        if count < total:
            self._look([np.asarray(one, np.int64) for one in indexes], total)
        self._places.append(numbers + first)

    def _look(self, pieces: list[Numbers], total: int) -> None:
        """Note whether the index of fewer rows shows which rows are left."""
        named = [one for one in self._left_out if one.is_named]
        found = [one for one in self._left_out if not one.is_named]
        starts = [0, *(one.stop for one in found)]
        for start, stop in zip(starts, [*(one.start for one in found), total], strict=True):
            inside = [one[(one >= start) & (one < stop)] for one in pieces]
            there = [one for one in inside if len(one)]
            numbers = np.concatenate([np.empty(0, np.int64), *there])
            if len(numbers) in (0, stop - start):
                continue
            # A mini-batch that ran out of memory has run in halves: a piece may begin a call.
            is_plain = numbers[0] == start and all(
                np.array_equal(one, np.arange(one[0], one[0] + len(one))) for one in there
            )
            if not is_plain:
                self._is_clear = True
            elif self._first_unclear is None and not np.array_equal(
                numbers, _others(start, stop, named)
            ):
                self._first_unclear = self._mini_batch

    @property
    def _left_out(self) -> list[LeftOut]:
        failed = self._failed.get(self._mini_batch)
        return [] if failed is None else [*failed.left_out]

    def _why_not(self, indexes: list[RowNumbers], count: int, total: int) -> str:
        """Return why indexes do not number the rows of a mini-batch."""
        whole = f"the index of the {count} rows from mini-batch {self._mini_batch}"
        for one in indexes:
            if isinstance(one, str) and one.startswith(NAMED):
                names = one.removeprefix(NAMED)
                return f"{whole} has the name {names}, and is not kept: reset_index() makes columns"
        return (
            f"{whole} does not say which rows they are, as an index without a name and with "
            f"different numbers out of 0 to {total - 1} would"
        )

    def _refuse(self, why: str) -> None:
        self.misfit = self.misfit or why
        self._places = []


def _others(start: int, stop: int, without: list[LeftOut]) -> Numbers:
    """Return the numbers of a range without those of some items."""
    gone = [np.arange(one.start, one.stop) for one in without]
    rows = np.arange(start, stop)
    return np.setdiff1d(rows, np.concatenate(gone)) if gone else rows


def _joined(indexes: list[RowNumbers]) -> Numbers | None:
    """Return the row numbers of all pieces; None if an index does not hold row numbers."""
    arrays = []
    for one in indexes:
        if isinstance(one, str):
            return None
        arrays.append(np.asarray(one, np.int64))
    return np.concatenate(arrays)


def _are_rows(numbers: Numbers, total: int) -> bool:
    """Say whether the numbers are those of different rows out of `total`."""
    if numbers.min() < 0 or numbers.max() >= total:
        return False
    seen = np.zeros(total, dtype=bool)
    seen[numbers] = True
    return int(np.count_nonzero(seen)) == len(numbers)
