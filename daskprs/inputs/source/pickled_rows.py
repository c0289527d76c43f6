"""Rows that the driver has pickled into files of a folder."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

from daskprs.errors import LoadError

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from daskprs.core.mini_batch import MiniBatch

Place = tuple[str, int, int]
"""The name of a file in the folder, an offset, and a length in bytes."""


class PickledReader:
    """Loads one pickle for each mini-batch."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, mini_batch: MiniBatch) -> pd.DataFrame:
        """Return the rows of a mini-batch."""
        return self.unpack(mini_batch.piece, self.pack(mini_batch.piece))

    def pack(self, piece: Place) -> bytes:
        """Return the pickle of a mini-batch."""
        name, offset, length = piece
        with (self._folder / name).open("rb") as file:
            file.seek(offset)
            return file.read(length)

    def unpack(self, piece: Place, body: bytes) -> pd.DataFrame:
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
