"""Staged partitions, as agents read them.

The file of a partition ends with the pickle of what reads it, and with the length of that pickle.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from daskprs.arrow.exact_frames import frame_of_labelled
from daskprs.inputs.frames.caller_frame import FrameReader
from daskprs.inputs.source.pickled_rows import PickledReader
from daskprs.inputs.source.pieces import Uncomputed

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from daskprs.arrow.arrow_pandas import SliceForm
    from daskprs.core.mini_batch import MiniBatch
    from daskprs.folders.row_labels import Numbers

LENGTH_BYTES = 8


class StagedReader:
    """Loads mini-batches out of the files of partitions; one file is open at a time."""

    def __init__(self) -> None:
        self._path = ""
        self._slices: Slices | None = None

    def load(self, mini_batch: MiniBatch) -> Any:
        """Return the rows or items of a mini-batch, for `run`."""
        piece = mini_batch.piece
        if isinstance(piece, Uncomputed):
            raise piece.error()
        if piece.path != self._path or self._slices is None:
            self.close()
            self._slices = _slices_of(piece.path)
            self._path = piece.path
        return self._slices.load(mini_batch)

    def close(self) -> None:
        """Unmap the file that was read last."""
        if self._slices is not None:
            self._slices.close()
            self._slices = None


class Slices(Protocol):
    """Reads slices of the file that it was found in; its pickle is the end of the file."""

    def load(self, mini_batch: MiniBatch) -> Any:
        """Return a slice."""
        ...

    def close(self) -> None:
        """Unmap the file."""
        ...


def append_reader(path: Path, slices: Slices) -> None:
    """Append to a file what reads it."""
    body = pickle.dumps(slices, protocol=5)
    with path.open("ab") as file:
        file.write(body)
        file.write(len(body).to_bytes(LENGTH_BYTES, "little"))


def _slices_of(path: str) -> Slices:
    with Path(path).open("rb") as file:
        end = file.seek(-LENGTH_BYTES, 2)
        length = int.from_bytes(file.read(), "little")
        file.seek(end - length)
        slices: Slices = pickle.loads(file.read(length))
    return slices


class ArrowSlices:
    """Maps an Arrow file, and gives its rows the form that `run` gets."""

    def __init__(self, form: SliceForm, end: int) -> None:
        self._form = form
        self._end = end
        self._reader: FrameReader | None = None

    def load(self, mini_batch: MiniBatch) -> Any:
        """Return rows, with a new index."""
        path, start, stop = mini_batch.piece
        if self._reader is None:
            self._reader = FrameReader(path, self._form, self._end)
        return self._reader.load(mini_batch._replace(piece=(start, stop - start)))

    def close(self) -> None:
        """Unmap the file."""
        self._reader = None


class LabelledFrames:
    """Makes frames of slices of tables that `labelled_table` has made."""

    def frame(self, table: pa.Table) -> pd.DataFrame:
        """Return the rows of a slice."""
        return frame_of_labelled(table)


class ArraySlices:
    """Maps a NumPy file; what `run` writes into an array stays private to the attempt."""

    def load(self, mini_batch: MiniBatch) -> Any:
        """Return rows."""
        path, start, stop = mini_batch.piece
        return np.asarray(np.lib.format.open_memmap(path, mode="c")[start:stop])

    def close(self) -> None:
        """Do nothing: an array is unmapped when it is released."""


class PickledSlices:
    """Loads one pickle for each mini-batch.

    Parameters
    ----------
    bounds, offsets
        The first row of each pickle, and its first byte; then the ends.

    """

    def __init__(self, bounds: Numbers, offsets: Numbers) -> None:
        self._bounds = bounds
        self._offsets = offsets

    def load(self, mini_batch: MiniBatch) -> Any:
        """Return rows, or items."""
        path, start, _ = mini_batch.piece
        at = int(np.searchsorted(self._bounds[:-1], start))
        begin, end = map(int, self._offsets[at : at + 2])
        folder, name = Path(path).parent, Path(path).name
        return PickledReader(folder).load(mini_batch._replace(piece=(name, begin, end - begin)))

    def close(self) -> None:
        """Do nothing: no file stays open."""
