"""Row labels: the index of the caller's frame, kept in the job folder for `to_pandas`.

A folder holds three files. ``index.labels`` has the index, in input order, in pieces
(`folders.index_pieces`). ``bounds.npy`` has the place in the plan at which each mini-batch begins,
and the end. ``rows.int64`` has the input row at each place of the plan; the file is missing where
the plan is in input order.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from daskprs._system.atomic_file import sync_folder
from daskprs._system.regular_files import open_regular
from daskprs.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pandas as pd

    from daskprs._system.seal import Seal

INDEX = "index.labels"
Numbers = npt.NDArray[np.int64]


def prepared_labels(scratch: Path) -> Path:
    """Return the folder in which a source prepares row labels."""
    return scratch / "labels"


def drop_labels(folder: Path) -> None:
    """Remove row labels, if there are any."""
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)


def row_bounds(total: int, rows: int) -> Numbers:
    """Return where mini-batches of `rows` rows begin, and the end of the last."""
    return np.append(np.arange(0, total, rows, dtype=np.int64), total)


class LabelWriter:
    """Writes the labels of an input into its scratch folder, one piece of the index at a time."""

    def __init__(self, scratch: Path) -> None:
        folder = prepared_labels(scratch)
        drop_labels(folder)
        folder.mkdir()
        self._folder = folder
        self._file = (folder / INDEX).open("wb")

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self._file.close()

    def add(self, index: pd.Index) -> None:
        """Write the labels of the next rows.

        Labels that cannot be pickled do not stop a job: the reason is written in their place.
        """
        from daskprs._folders.index_pieces import write_piece

        write_piece(self._file, index)

    def finish(self, bounds: Numbers) -> None:
        """Write where the mini-batches begin."""
        np.save(self._folder / "bounds.npy", bounds)


def reorder_labels(scratch: Path, groups: Iterable[Numbers], bounds: Numbers) -> None:
    """Give prepared labels the order of a plan that is not in input order.

    `scratch` is the folder in which the source prepared its input. The groups are the input rows of
    each mini-batch, in the order of the plan; the bounds say where each begins there, and the end.
    """
    folder = prepared_labels(scratch)
    with (folder / "rows.int64").open("wb") as file:
        for rows in groups:
            file.write(np.ascontiguousarray(rows, np.int64).data)
    np.save(folder / "bounds.npy", bounds)


def adopt_labels(prepared: Path, folder: Path) -> None:
    """Move prepared labels to their folder; they survive a loss of power."""
    for path in prepared.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    sync_folder(prepared)
    # By a rename, so that labels are there whole or not at all.
    prepared.replace(folder)


class RowLabels:
    """Reads the labels of an input; a `JournalError` means that the files cannot be read."""

    def __init__(self, folder: Path, seal: Seal) -> None:
        self._folder = folder
        self._seal = seal
        try:
            with open_regular(folder / "bounds.npy") as file:
                self.bounds: Numbers = np.load(file, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise self._damaged(error) from error

    def of(self, places: Numbers) -> pd.Index | str:
        """Return the labels of rows by their places in the plan, or why they were not kept."""
        try:
            pieces = list(self._pieces())
            rows = self._input_rows(places)
        except JournalError:
            raise
        except Exception as error:  # damaged pickles raise anything
            raise self._damaged(error) from error
        for piece in pieces:
            if isinstance(piece, str):
                return piece
        index: pd.Index = pieces[0].append(pieces[1:]) if len(pieces) > 1 else pieces[0]
        first = int(rows[0]) if len(rows) else 0
        if np.array_equal(rows, np.arange(first, first + len(rows))):
            return index[first : first + len(rows)]
        return index.take(rows)

    def _input_rows(self, places: Numbers) -> Numbers:
        path = self._folder / "rows.int64"
        if not path.exists():
            return places
        with open_regular(path) as file:
            return np.fromfile(file, np.int64)[places]

    def _pieces(self) -> Iterable[Any]:
        from daskprs._folders.index_pieces import read_piece

        path = self._folder / INDEX
        what = f"{path}, the index of the input,"
        with open_regular(path) as file:
            seal, size = self._seal.of(file), os.fstat(file.fileno()).st_size
            while file.tell() < size:
                yield read_piece(file, seal, what)

    def _damaged(self, error: Exception) -> JournalError:
        msg = (
            f"to_pandas: the row labels in {self._folder} cannot be read: {type(error).__name__}: "
            f"{error}. If they are objects of your own classes, make these importable. "
            "to_pandas(ignore_index=True) numbers the rows from 0 instead."
        )
        return JournalError(msg)
