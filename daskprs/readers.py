"""Readers of file formats that daskprs does not know; a package adds one by an entry point.

The entry point of the group ``daskprs.readers`` is named by the suffix, without its dot, and means
an object, or a module, with the three functions of a `FileReader`.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa


class Piece(NamedTuple):
    """A part of a file whose rows are one mini-batch.

    Attributes
    ----------
    where : int, str or tuple
        The value by which `read` finds the part: a number, a text, or a tuple of these.
    rows : int or None
        The number of rows, where it is known.
    size_bytes : int or None
        The size, where it is known.

    """

    where: Any
    rows: int | None = None
    size_bytes: int | None = None


class FileReader(Protocol):
    """Cuts the files of a format and reads parts of them.

    `schema` and `cut` run in the process that starts a job, `read` in its agents. A file is open
    for reading, on a disk or in a store, and daskprs closes it. An error that a function raises is
    shown with the path of the file.
    """

    def schema(self, file: IO[bytes]) -> pa.Schema:
        """Return the columns of a file.

        For pandas, a nullable column of integers has floats, and one of booleans has objects.
        A field with ``nullable=False`` keeps its type; a null that `read` gives there is an error.
        """

    def cut(self, file: IO[bytes], size_bytes: int) -> Iterable[Piece]:
        """Yield the parts of a file in order, each of about `size_bytes`, the same each time."""

    def read(self, file: IO[bytes], where: Any) -> pa.Table:
        """Return the rows of a part, with the columns of `schema`."""
