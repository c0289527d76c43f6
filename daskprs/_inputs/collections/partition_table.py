"""The partitions of a collection that were computed before: their rows, their cuts, their content.

The driver keeps the table in the job folder, so that a resume knows the mini-batches of a
collection without computing it again.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._system.atomic_file import whole_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import IO


TABLE = "partitions.jsonl"
"""The table of partitions, in the scratch folder."""
LABELS = "labels."
"""The beginning of the names of the files with a partition's labels, in the same folder."""


def is_record(name: str) -> bool:
    """Return whether a file of a scratch folder is what a resume knows of a collection."""
    return name == TABLE or name.startswith(LABELS)


class PartitionCut(NamedTuple):
    """The rows of a partition, and how it is cut into mini-batches."""

    rows: int
    step: int
    """Rows of a mini-batch; the last one may have fewer."""
    size_bytes: int
    """Bytes of the staged partition."""
    digest: str
    """Digest of the content; empty for a partition that could not be computed.

    It is equal for equal content, wherever and whenever the content was computed. A set of text is
    an exception: each process orders it anew.
    """
    first_label: int | None = None
    """The label of the first row of a frame, where those of the others go on from it by one; None
    for other labels, and without rows or labels."""

    def has_rows_of(self, other: PartitionCut) -> bool:
        """Return whether both are the same rows, whatever their labels."""
        return self._replace(first_label=None) == other._replace(first_label=None)

    def slices(self) -> Iterator[tuple[int, int]]:
        """Yield the first row of each mini-batch, and the row after its last; one at least."""
        for start in range(0, max(1, self.rows), self.step):
            yield start, min(start + self.step, self.rows)

    @property
    def failed(self) -> bool:
        """Whether the partition could not be computed."""
        return not self.digest


NOT_COMPUTED = PartitionCut(0, 1, 0, "")


class PartitionTable:
    """The cuts of a collection's partitions, by number, in memory and in a file.

    The file has one JSON value a line: a header, then one partition a line. The header is what the
    cuts depend on: the token of the collection, and how partitions are cut.
    """

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self.cuts: dict[int, PartitionCut] = {}
        self.before: dict[int, PartitionCut] = {}
        """The cuts that an earlier run of the job has found."""
        self.header_before: dict[str, Any] = {}
        self._path = path
        self._header = json.loads(json.dumps(header))
        self._file: IO[str] | None = None
        self._read()

    @property
    def is_same(self) -> bool:
        """Whether the earlier run had the same collection, and knew that by its token."""
        return self._header["token"] is not None and self.header_before == self._header

    def _read(self) -> None:
        try:
            lines = self._path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return
        with suppress(ValueError):  # a loss of power leaves zeros at the end, or other bytes
            self.header_before = json.loads(lines[0])
            for line in lines[1:-1]:  # a crash leaves a line without an end
                number, *cut = json.loads(line)
                self.before[number] = PartitionCut(*cut)

    def begin(self) -> None:
        """Write the table with the cuts known so far; from here on `add` appends to it."""
        self.close()
        with whole_file(self._path) as file:
            lines = [self._header, *([number, *cut] for number, cut in self.cuts.items())]
            file.write("".join(f"{json.dumps(line)}\n" for line in lines).encode())
        self._file = self._path.open("a")

    def add(self, number: int, cut: PartitionCut) -> None:
        """Record the cut of a partition."""
        if self.cuts.get(number) == cut:
            return
        self.cuts[number] = cut
        if self._file is not None:
            self._file.write(f"{json.dumps([number, *cut])}\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
