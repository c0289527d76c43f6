"""What `run` returned, read back from the typed spools of a job."""

from __future__ import annotations

import pickle
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pandas as pd

from daskprs.errors import JournalError, ReturnTypeError
from daskprs.job_lock import latest_epoch
from daskprs.output.commits import Region, each
from daskprs.output.history import History
from daskprs.output.regions import OpenFiles, holds
from daskprs.output.typed_rows import column_of, decode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from daskprs.job_folder import JobFolder
    from daskprs.output.typed_rows import Piece


def read_rows(folder: JobFolder) -> pd.DataFrame | None:
    """Return the typed rows of a job in input order; None when it kept none.

    Raises
    ------
    JournalError
        When the typed spool is damaged, or cannot be read here.
    ReturnTypeError
        When `run` returned frames for some mini-batches and lists for others.

    """
    epochs = range(1, latest_epoch(folder) + 1)
    if not any(folder.typed_spools(epoch).exists() for epoch in epochs):
        return None
    frames: list[pd.DataFrame] = []
    values: list[Any] = []
    for index, piece in _pieces(folder):
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
    if values:
        return column_of(values)
    return _together(frames) if frames else _no_rows(folder)


def _no_rows(folder: JobFolder) -> pd.DataFrame:
    """Return a frame of no rows, with the columns of the input if it has no rows either."""
    columns = folder.columns(latest_epoch(folder))
    if not columns.exists():
        return pd.DataFrame()
    frame: pd.DataFrame = pickle.loads(columns.read_bytes())
    return frame


def _together(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """Put frames together.

    One without rows says what the columns are where there is no other; else its types, guessed by
    whoever made it, would only disturb those of the others.
    """
    filled = [frame for frame in frames if len(frame)] or frames[:1]
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame()


def _pieces(folder: JobFolder) -> Iterator[tuple[int, Piece]]:
    history = History(folder)
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
