"""Frames with columns that Arrow would change (any Python objects): pickled, slice by slice."""

from __future__ import annotations

import hashlib
import pickle
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs.errors import InputError, LoadError, class_name
from daskprs.folders.row_labels import row_bounds
from daskprs.inputs.frames.arrow_frame import keep_labels, row_slices, rows_of
from daskprs.system.atomic_file import whole_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from daskprs.core.mini_batch import MiniBatch, Where
    from daskprs.folders.row_labels import Numbers
    from daskprs.inputs.source.input_file import InputFile
    from daskprs.inputs.source.source import Unit

SAMPLE_ROWS = 1_000


class ObjectFrameSource:
    """Cuts a frame by rows: size ÷ mean pickled bytes of its first rows.

    Parameters
    ----------
    frame
        Any frame whose cells can be pickled.
    size_bytes
        Bytes of a mini-batch.

    Raises
    ------
    InputError
        When a cell cannot be pickled.

    """

    unit: Unit = "row"
    how_far = ""

    def __init__(self, frame: pd.DataFrame, size_bytes: int) -> None:
        self._frame = frame
        sample = frame.iloc[:SAMPLE_ROWS]
        mean = len(_pickled(sample, 0)) / max(1, len(sample))
        self._rows = max(1, int(size_bytes / mean))
        self._total = len(frame)
        self._meta: pd.DataFrame = pickle.loads(  # a slice would hold the memory of all rows
            pickle.dumps(frame.iloc[:0].reset_index(drop=True))
        )
        self._offsets = array("q", [0])
        self._digest = ""
        self._path = ""
        self.index: pd.Index | None = None
        """The row labels to keep; None: no labels are kept."""

    def prepare(self, scratch: Path) -> None:
        """Write one pickle for each mini-batch, and let go of the frame.

        Raises
        ------
        InputError
            When a cell cannot be pickled.

        """
        if self.index is not None:
            keep_labels(scratch, self.index, self.bounds)
            self.index = None
        path = scratch / "frame.pickles"
        digest = hashlib.blake2b()
        with whole_file(path, durable=False) as file:
            for start in range(0, self._total, self._rows):
                piece = self._frame.iloc[start : start + self._rows].reset_index(drop=True)
                body = _pickled(piece, start)
                digest.update(body)
                file.write(body)
                self._offsets.append(file.tell())
        self._path = str(path)
        self._digest = digest.hexdigest()[:24]
        self._frame = self._meta

    def mini_batches(self) -> Iterator[MiniBatch]:
        """Yield slices of rows (after `prepare`)."""
        for one in row_slices(self._total, self._rows, self._digest):
            begin, end = self._offsets[one.index], self._offsets[one.index + 1]
            yield one._replace(piece=(begin, end - begin), size_bytes=end - begin)

    def count(self) -> int:
        """Return how many mini-batches there are."""
        return -(-self._total // self._rows)

    @property
    def bounds(self) -> Numbers:
        """The row at which each mini-batch begins, and the end."""
        return row_bounds(self._total, self._rows)

    def fingerprint(self) -> dict[str, Any]:
        """Return what the plan depends on (after `prepare`)."""
        return {"kind": "object frame", "content": self._digest, "rows": self._rows}

    def files(self) -> tuple[InputFile, ...]:
        """Return none: the frame is written for the job."""
        return ()

    def reader(self) -> ObjectFrameReader:
        """Return the reader for the agents (after `prepare`)."""
        return ObjectFrameReader(self._path)

    def where(self, mini_batch: MiniBatch) -> Where:
        """Return which rows of the frame."""
        return rows_of(mini_batch)

    def meta(self) -> pd.DataFrame:
        """Return the frame without rows."""
        return self._meta

    @property
    def path_names(self) -> list[str]:
        """Return nothing: a frame has no path."""
        return []

    def path_values(self, mini_batch: MiniBatch) -> dict[str, Any]:
        """Return nothing: a frame has no path."""
        del mini_batch
        return {}


def _pickled(piece: pd.DataFrame, first_row: int) -> bytes:
    """Return the pickle of some rows, or name the cell that has none."""
    try:
        return pickle.dumps(piece, protocol=5)
    except Exception as error:
        msg = (
            f"data: {_unpicklable(piece, first_row)} cannot be sent to the agents: "
            f"{type(error).__name__}: {error}. Keep plain values in the frame, and make what "
            "cannot be pickled (a lock, a connection, a generator) in init()."
        )
        raise InputError(msg) from error


def _unpicklable(piece: pd.DataFrame, first_row: int) -> str:
    """Return the place and class of the first cell that cannot be pickled."""
    for place, name in enumerate(piece.columns):
        column = piece.iloc[:, place]
        for row, cell in enumerate(column if column.dtype == object else ()):
            try:
                pickle.dumps(cell, protocol=5)
            except Exception:  # noqa: BLE001 - a class may raise anything
                kind = class_name(type(cell))
                return f"column {name!r}, row {first_row + row}: the {kind} there"
    return "the frame"


class ObjectFrameReader:
    """Loads one pickle for each mini-batch."""

    def __init__(self, path: str) -> None:
        self._path = path

    def load(self, mini_batch: MiniBatch) -> pd.DataFrame:
        """Return the rows of a slice. What cannot be unpickled in an agent is not tried again."""
        return self.unpack(mini_batch.piece, self.pack(mini_batch.piece))

    def pack(self, piece: tuple[int, int]) -> bytes:
        """Return the pickle of a slice."""
        begin, length = piece
        with Path(self._path).open("rb") as file:
            file.seek(begin)
            return file.read(length)

    def unpack(self, piece: tuple[int, int], body: bytes) -> pd.DataFrame:
        """Return the rows that were pickled."""
        del piece
        try:
            frame: pd.DataFrame = pickle.loads(body)
        except (AttributeError, ImportError) as error:
            msg = (
                f"an object of the frame cannot be loaded in an agent: {error}. Its class has to "
                "be importable there: put its module into source_directory, or install it."
            )
            raise LoadError(msg) from error
        return frame

    def close(self) -> None:
        """Do nothing: no file stays open."""
