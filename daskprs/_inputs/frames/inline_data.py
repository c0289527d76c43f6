"""Mini-batches that carry their data, for nodes that do not see the files of the driver.

The driver writes a frame, or rows brought together by key, to files of the job folder, and a
descriptor says where in them its rows lie. For a node that does not see that folder, the
descriptor holds the bytes themselves.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from daskprs._inputs.source.source import PathsReader
from daskprs.errors import LoadError

if TYPE_CHECKING:
    import pandas as pd

    from daskprs._core.mini_batch import MiniBatch
    from daskprs._inputs.source.source import Reader

GONE = (FileNotFoundError, NotADirectoryError)


class Carried(NamedTuple):
    """The replacement for a piece in a descriptor."""

    piece: Any
    """The piece itself."""
    body: bytes
    """The packed data of the piece."""


@runtime_checkable
class CarryingReader(Protocol):
    """A reader of data that the driver has written."""

    def pack(self, piece: Any) -> bytes:
        """Return, in the driver, all that `unpack` needs."""
        ...

    def unpack(self, piece: Any, body: bytes) -> pd.DataFrame:
        """Return, in an agent, the rows of a piece."""
        ...


def carried(mini_batch: MiniBatch, reader: CarryingReader) -> MiniBatch:
    """Return a mini-batch that carries its data."""
    piece = mini_batch.piece
    return mini_batch._replace(piece=Carried(piece, reader.pack(piece)))


class FarReader:
    """The reader of a job, for a node that does not see the job folder."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def load(self, mini_batch: MiniBatch) -> pd.DataFrame | list[str]:
        """Return the argument of `run`; a path that this node does not see is a `LoadError`."""
        reader, piece = self._reader, mini_batch.piece
        if isinstance(piece, Carried) and isinstance(reader, CarryingReader):
            return reader.unpack(piece.piece, piece.body)
        try:
            data = reader.load(mini_batch)
        except (OSError, LoadError) as error:
            missing = _missing(error)
            if missing is None:
                raise
            raise LoadError(_not_seen(missing or mini_batch.label)) from error
        if isinstance(data, list) and isinstance(reader, PathsReader):
            for path in data:
                if not os.path.exists(path):  # noqa: PTH110 - each of many
                    raise LoadError(_not_seen(path))
        return data

    def has_room(self, mini_batch: MiniBatch) -> bool:
        """Say whether files that are fetched have room while `run` reads others."""
        return not isinstance(self._reader, PathsReader) or self._reader.has_room(mini_batch)

    def expect(self, at_once: int) -> None:
        """Be ready for so many mini-batches at a time."""
        if isinstance(self._reader, PathsReader):
            self._reader.expect(at_once)

    def check(self, mini_batch: MiniBatch) -> None:
        """Compare files that `run` reads by itself with the plan."""
        if isinstance(self._reader, PathsReader):
            self._reader.check(mini_batch)

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()


def _missing(error: BaseException | None) -> str | None:
    """Return the path that was not found, if that is the cause; the path may be empty."""
    while error is not None:
        if isinstance(error, GONE):
            return str(error.filename or "")
        error = error.__cause__ or error.__context__
    return None


def _not_seen(path: str) -> str:
    return (
        f"{path} is not visible from the node {socket.gethostname()}. Put the input on a path that "
        "all nodes share, or into an object store (s3://…), and name it by that."
    )
