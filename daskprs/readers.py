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
    """A part of a file whose rows are one mini-batch."""

    where: Any
    """The value by which `read` finds the part: numbers, text, or a tuple of them."""
    rows: int | None = None
    """Number of its rows, where it is known."""
    size_bytes: int | None = None
    """Its size, where it is known: larger parts are expected to take longer."""


class FileReader(Protocol):
    """Cuts files and reads parts of them: the first two in the driver, the last one in agents.

    A file is open for reading, wherever it is, and is closed for the reader. An error that the
    reader raises is shown with the path of the file.
    """

    def schema(self, file: IO[bytes]) -> pa.Schema:
        """Return the columns of a file; a column that never has a null is not nullable.

        For pandas, a nullable column of integers or booleans has floats or objects.
        """

    def cut(self, file: IO[bytes], size_bytes: int) -> Iterable[Piece]:
        """Yield the parts of a file in order, each of about `size_bytes`; each time the same."""

    def read(self, file: IO[bytes], where: Any) -> pa.Table:
        """Return the rows of a part, with the columns of `schema`."""
