"""Read the rows that `run` returned back from the typed spools of a job."""

from __future__ import annotations

import pickle
import warnings
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pandas as pd

from daskprs.errors import JournalError, ReturnTypeError
from daskprs.folders.job_lock import begun_epochs, epochs_of
from daskprs.folders.row_labels import RowLabels
from daskprs.output.journal.commits import each
from daskprs.output.journal.history import History
from daskprs.output.rows.row_matching import RowMatcher
from daskprs.output.rows.typed_rows import column_of, decode
from daskprs.output.spool import OpenFiles, Region, holds
from daskprs.system.regular_files import read_regular

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from daskprs.folders.job_folder import JobFolder
    from daskprs.output.rows.typed_rows import TypedPiece


def read_rows(folder: JobFolder, *, ignore_index: bool = False) -> pd.DataFrame | None:
    """Return the typed rows of a job in input order; None when the job kept none.

    If the input is a frame, rows get its labels. Rows that cannot be matched with rows of the
    frame are numbered from 0, with a warning.

    Parameters
    ----------
    folder
        The job folder.
    ignore_index
        Number the rows from 0 in any case.

    Raises
    ------
    JournalError
        When the typed spool or the row labels are damaged, or cannot be read here.
    ReturnTypeError
        When `run` returned frames for some mini-batches and lists for others.

    """
    if not epochs_of(folder, folder.typed_spools):
        return None
    history = History(folder)
    labels = _labels(folder, history) if not ignore_index else None
    matcher = None if labels is None else RowMatcher(labels.bounds)
    frames: list[pd.DataFrame] = []
    values: list[Any] = []
    for index, piece in _pieces(folder, history):
        if matcher is not None:
            matcher.add(index, piece)
        if piece.kind == "frame":
            frames.append(piece.value)
        else:
            values.extend([piece.value] if piece.kind == "element" else piece.value)
        if frames and values:
            msg = (
                "to_pandas: run() returned frames for some mini-batches and lists or arrays for "
                f"others (mini-batch {index} is the first that differs): they make no one frame."
            )
            raise ReturnTypeError(msg)
    filled = column_of(values) if values else _together(frames)
    rows = filled if frames or values else _no_rows(folder)
    if labels is not None and matcher is not None:
        _label(rows, labels, matcher)
    return rows


def _no_rows(folder: JobFolder) -> pd.DataFrame:
    """Return a frame without rows, with the kept columns if the input has no rows either."""
    for epoch in reversed(begun_epochs(folder)):
        columns = folder.columns(epoch)
        if columns.exists():
            frame: pd.DataFrame = pickle.loads(read_regular(columns))
            return frame
    return pd.DataFrame()


def _labels(folder: JobFolder, history: History) -> RowLabels | None:
    """Return the input's row labels; None for input without labels or jobs of earlier versions."""
    return None if history.labels is None else RowLabels(folder.labels(history.labels))


def _label(rows: pd.DataFrame, labels: RowLabels, matcher: RowMatcher) -> None:
    """Give returned rows the labels of their input rows, or warn that they have none."""
    places = matcher.finish()
    index = None if places is None else labels.of(places)
    if isinstance(index, pd.Index):
        rows.index = index
        return
    why = matcher.misfit if index is None else f"the index of the input has no pickle ({index})"
    msg = (
        f"to_pandas: the rows are numbered from 0 and lack the labels of the input: {why}. Do not "
        "assign them to columns of the input. Let run() keep the index of mini_batch, or accept "
        "the numbers by to_pandas(ignore_index=True)."
    )
    warnings.warn(msg, stacklevel=4)


def _together(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate frames.

    Frames without rows are left out, since their guessed types would disturb those of the others.
    If all frames are without rows, the first one gives the columns.
    """
    filled = [frame for frame in frames if len(frame)] or frames[:1]
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame()


def _pieces(folder: JobFolder, history: History) -> Iterator[tuple[int, TypedPiece]]:
    commits = history.commits
    rows = history.standing()
    rows = rows[commits.column("typed_length")[rows] > 0]
    names = ("index", "spool", *(f"typed_{part}" for part in Region._fields))
    columns = [commits.column(name)[rows] for name in names]

    def path_of(number: int) -> Path:
        epoch, name = commits.spool(number)
        return folder.typed_spools(epoch) / name

    with closing(OpenFiles(path_of)) as files:
        for index, number, *place in each(*columns):
            spool, region = files.get(number), Region(*place)
            if not holds(spool, region):
                msg = (
                    f"to_pandas: the typed rows of mini-batch {index} in {path_of(number)} are "
                    "damaged. Run the job again with resume=True: what is damaged is done again."
                )
                raise JournalError(msg)
            spool.seek(region.offset)
            for piece in decode(spool, region.length):
                yield index, piece
