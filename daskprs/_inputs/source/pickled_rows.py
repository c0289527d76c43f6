"""Rows that the driver has pickled into files of a folder."""

from __future__ import annotations

import pickle
import zlib
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from daskprs._arrow.array_parts import pickle_of
from daskprs._system.regular_files import open_regular, open_unshared
from daskprs.errors import LoadError

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

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


HEAD_BYTES = 100
"""Bytes of a pickle that begin with its class."""
MANY = 64
"""Categories of a column above which they are in the file once, and not in each pickle."""


class Coded(NamedTuple):
    """Rows with codes in place of categories. Behind their pickle is that of the types' place."""

    digest: int
    """Digest of the types: rows with the same codes in other categories are other rows."""
    rows: pd.DataFrame


class CategoryWriter:
    """Writes categories into a file of pickles once: there may be a pickle for each of them."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._types: dict[int, Any] = {}
        self._digest = 0
        self._place = b""

    def coded(self, rows: Any) -> tuple[Any, bytes]:
        """Return rows as they are pickled, and the bytes that follow their pickle."""
        types = {
            place: dtype
            for place, dtype in enumerate(getattr(rows, "dtypes", ()))
            if len(getattr(dtype, "categories", ())) > MANY
        }
        if not types:
            return rows, b""
        known = self._types
        if [*types] != [*known] or any(types[place] is not known[place] for place in types):
            body = pickle.dumps(types, protocol=5)
            self._types, self._digest = types, zlib.crc32(body)
            self._place = pickle.dumps((self._file.tell(), self._digest))
            self._file.write(body)
        rows = rows.copy(deep=False)
        for place in types:
            rows.isetitem(place, rows.iloc[:, place].cat.codes)
        return Coded(self._digest, rows), self._place


class PickledReader:
    """Loads one pickle for each mini-batch, from files that only their owner can write.

    The `owner` is the driver, which makes the reader; None on a mount without owners and modes.
    """

    def __init__(self, folder: Path, owner: int | None) -> None:
        self._folder = folder
        self._owner = owner
        self._types: tuple[Any, dict[int, Any]] = (None, {})
        """The types that were read last, and before them the file and their place in it."""

    def load(self, mini_batch: MiniBatch) -> Any:
        """Return the rows of a mini-batch, without a copy of their pickle in memory."""
        name, offset, _ = mini_batch.piece
        with self._opened(name) as file:
            file.seek(offset)
            return self._decoded(unpickled(pickle.load, file), file, name)

    def pack(self, piece: Place) -> bytes:
        """Return the pickle of a mini-batch."""
        name, offset, length = piece
        with self._opened(name) as file:
            file.seek(offset)
            body = file.read(length)
            if Coded.__name__.encode() not in body[:HEAD_BYTES]:
                return body
            file.seek(offset)
            return pickle.dumps(self._decoded(pickle.load(file), file, name), protocol=5)

    def unpack(self, piece: Place, body: bytes) -> Any:
        """Return the rows that were pickled."""
        del piece
        return unpickled(pickle.loads, body)

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _decoded(self, value: Any, file: IO[bytes], name: str) -> Any:
        """Return rows with the categories that are in the file; leave other values as they are."""
        if not isinstance(value, Coded):
            return value
        import pandas as pd

        place = pickle.load(file)
        if self._types[0] != (name, place):
            file.seek(place[0])
            self._types = (name, place), pickle.load(file)
        for at, dtype in self._types[1].items():
            column = pd.Categorical.from_codes(value.rows.iloc[:, at], dtype=dtype)
            value.rows.isetitem(at, column)
        return value.rows

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
