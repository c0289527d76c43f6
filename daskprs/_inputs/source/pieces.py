"""The rows of a mini-batch inside a partition, and the reason why a partition has none."""

from __future__ import annotations

import traceback
from typing import NamedTuple, Self

from daskprs.errors import DaskprsError, LoadError


class PartitionSlice(NamedTuple):
    """The rows of a mini-batch; a lease adds where the staged partition lies."""

    partition: int
    start: int
    stop: int
    digest: str
    """Digest of the partition as it was when the mini-batch was made."""


class StagedPiece(NamedTuple):
    """Rows of a staged partition, or items of a list; the worker knows the path."""

    path: str
    start: int
    stop: int
    checksum: bytes
    """From the reader at the end of the file. No file has it: messages of Dask bring it."""


class Uncomputed(NamedTuple):
    """A partition that could not be computed or staged, in place of a piece."""

    kind: str
    """The class of the error."""
    message: str
    traceback: str

    @classmethod
    def of(cls, error: BaseException, number: int) -> Self:
        """Describe the error of a partition; one of daskprs names the partition itself."""
        message = str(error)
        if not isinstance(error, DaskprsError):
            message = (
                f"partition {number} of the collection cannot be computed: {message}. Try it "
                f"alone: data.to_delayed()[{number}].compute(), or data[{number}] of a list."
            )
        text = "".join(traceback.format_exception(error))
        return cls(type(error).__qualname__, message, text)

    def error(self) -> LoadError:
        """Return the error by which a reader reports it, with the original one."""
        error = LoadError(self.message)
        error.origin = (self.kind, self.message, self.traceback)
        return error
