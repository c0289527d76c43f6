"""Rows that the driver has pickled into files of a folder."""

from __future__ import annotations

import pickle
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from daskprs._system.regular_files import open_regular, open_unshared
from daskprs._system.tensors import pickle_of
from daskprs.errors import LoadError

if TYPE_CHECKING:
    from collections.abc import Callable

    from daskprs._core.mini_batch import MiniBatch

Place = tuple[str, int, int]
"""The name of a file in the folder, an offset, and a length in bytes."""


def pickled(value: Any) -> bytes:
    """Return the pickle of a value; classes and functions of a notebook or main script go along."""
    with suppress(Exception):  # a class may raise anything
        body = pickle_of(value)
        if b"__main__" not in body:
            return body
    import cloudpickle

    by_value: bytes = cloudpickle.dumps(value, protocol=5)
    return by_value


class PickledReader:
    """Loads one pickle for each mini-batch, from files that only their owner can write.

    The `owner` is the driver, which makes the reader; None on a mount without owners and modes.
    """

    def __init__(self, folder: Path, owner: int | None) -> None:
        self._folder = folder
        self._owner = owner

    def load(self, mini_batch: MiniBatch) -> Any:
        """Return the rows of a mini-batch, without a copy of their pickle in memory."""
        name, offset, _ = mini_batch.piece
        with self._opened(name) as file:
            file.seek(offset)
            return unpickled(pickle.load, file)

    def pack(self, piece: Place) -> bytes:
        """Return the pickle of a mini-batch."""
        name, offset, length = piece
        with self._opened(name) as file:
            file.seek(offset)
            return file.read(length)

    def unpack(self, piece: Place, body: bytes) -> Any:
        """Return the rows that were pickled."""
        del piece
        return unpickled(pickle.loads, body)

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _opened(self, name: str) -> IO[bytes]:
        """Open a file of the folder; or one of a worker's own, which other users cannot enter."""
        path = self._folder / name
        if self._owner is None or Path(name).is_absolute():
            return open_regular(path)
        return open_unshared(path, self._owner)


def unpickled(load: Callable[[Any], Any], pickled: Any) -> Any:
    """Load a pickle; a class that is not there is a `LoadError`."""
    try:
        return load(pickled)
    except (AttributeError, ImportError) as error:
        msg = (
            f"an object of the input cannot be loaded in an agent: {error}. Its class has to "
            "be importable there: put its module into source_directory, or install it."
        )
        raise LoadError(msg) from error
