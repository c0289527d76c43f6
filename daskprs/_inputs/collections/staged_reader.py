"""Staged partitions, as agents read them.

The file of a partition ends with the pickle of what reads it, and with the length of that pickle.
That pickle is loaded only if its checksum is the one that came with the mini-batch, by messages of
Dask. It has the checksums of all other pickles in the file.
"""

from __future__ import annotations

import hashlib
import hmac
import pickle
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from daskprs._arrow.exact_frames import frame_of_labelled
from daskprs._inputs.frames.caller_frame import FrameReader
from daskprs._inputs.source.pickled_rows import unpickled
from daskprs._inputs.source.pieces import Uncomputed
from daskprs._system.regular_files import open_regular
from daskprs.errors import JobFolderError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from daskprs._arrow.arrow_pandas import SliceForm
    from daskprs._core.mini_batch import MiniBatch
    from daskprs._folders.row_labels import Numbers
    from daskprs._inputs.source.pieces import StagedPiece

LENGTH_BYTES = 8
CHECKSUM_BYTES = 16


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
            self._slices = None  # never two files at a time
            self._slices = _slices_of(piece)
            self._path = piece.path
        return self._slices.load(mini_batch)

    def close(self) -> None:
        """Unmap the file that was read last."""
        self._slices = None


def append_reader(path: Path, slices: Slices) -> bytes:
    """Append to a file what reads it, and return the checksum of that."""
    body = pickle.dumps(slices, protocol=5)
    with path.open("ab") as file:
        file.write(body)
        file.write(len(body).to_bytes(LENGTH_BYTES, "little"))
    return checksum_of(body)


def _slices_of(piece: StagedPiece) -> Slices:
    with open_regular(Path(piece.path)) as file:
        end = file.seek(-LENGTH_BYTES, 2)
        begin = end - int.from_bytes(file.read(), "little")
        body = _checked(file, max(0, begin), end, piece.checksum)
    slices: Slices = pickle.loads(body)
    return slices


def checksum_of(body: bytes) -> bytes:
    """Return the checksum of a pickle."""
    return hashlib.blake2b(body, digest_size=CHECKSUM_BYTES).digest()


def _checked(file: IO[bytes], begin: int, end: int, checksum: bytes) -> bytes:
    """Return a pickle in a file, unless another program has changed it."""
    file.seek(begin)
    body = file.read(end - begin)
    if hmac.compare_digest(checksum_of(body), checksum):
        return body
    msg = (
        f"{file.name}: its rows are not those that a worker of this job has written there, so they "
        "are not loaded. Another program has changed the file, or the disk has lost a part of it. "
        "Give the workers a --local-directory that only their user can write to."
    )
    raise JobFolderError(msg)


class ArrowSlices:
    """Maps an Arrow file, and gives its rows the form that `run` gets."""

    def __init__(self, form: SliceForm, end: int) -> None:
        self._form = form
        self._end = end
        self._reader: FrameReader | None = None

    def load(self, mini_batch: MiniBatch) -> Any:
        """Return rows, with a new index."""
        path, start, stop, _ = mini_batch.piece
        if self._reader is None:
            self._reader = FrameReader(path, self._form, self._end)
        return self._reader.load(mini_batch._replace(piece=(start, stop - start)))


class LabelledFrames:
    """Makes frames of slices of tables that `labelled_table` has made."""

    def frame(self, table: pa.Table) -> pd.DataFrame:
        """Return the rows of a slice."""
        return frame_of_labelled(table)


class ArraySlices:
    """Maps a NumPy file; what `run` writes into an array stays private to the attempt."""

    def load(self, mini_batch: MiniBatch) -> Any:
        """Return rows."""
        path, start, stop, _ = mini_batch.piece
        return np.asarray(np.lib.format.open_memmap(path, mode="c")[start:stop])


class PickledSlices(NamedTuple):
    """Loads one pickle for each mini-batch."""

    step: int
    """The rows of each pickle but the last."""
    offsets: Numbers
    """The first byte of each pickle, and the end."""
    checksums: list[bytes]

    def load(self, mini_batch: MiniBatch) -> Any:
        """Return rows, or items."""
        path, start, _, _ = mini_batch.piece
        at = start // self.step
        begin, end = map(int, self.offsets[at : at + 2])
        with open_regular(Path(path)) as file:
            return unpickled(pickle.loads, _checked(file, begin, end, self.checksums[at]))


Slices = ArrowSlices | ArraySlices | PickledSlices
"""Reads slices of the file that it was found in; its pickle is the end of the file."""
