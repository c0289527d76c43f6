"""The files of an input, as columns: a million of them take some hundred megabytes, not four."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, overload

from daskprs._inputs.source.input_file import InputFile

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

CODEC = ("utf-8", "surrogatepass")
"""Paths may hold any bytes, which Python shows as lone surrogates."""
UNKNOWN = -1
"""The size of a file whose store does not report it."""


class FileList(Sequence[InputFile]):
    """A list of files that can be added to, not changed; each access makes its file anew.

    A file takes about 50 bytes beside its path; as an object it would take 300.
    """

    __slots__ = ("_ends", "_is_ordered", "_last", "_odd", "_relative_chars", "_sizes", "_text")

    def __init__(self, files: Iterable[InputFile] = ()) -> None:
        self._text = bytearray()
        """Path and version of each file, one after the other."""
        self._ends = array("Q", [0])
        """The end of each of these texts, in bytes; the first begins at 0."""
        self._sizes = array("q")
        self._relative_chars = array("I")
        """Characters of each relative path, which is the end of the path."""
        self._odd: dict[int, str] = {}
        """Relative paths that are not the end: ``b.csv`` in ``zip://b.csv::s3://c.zip``."""
        self._is_ordered = True
        self._last = ""
        for file in files:
            self.add(file)

    def __len__(self) -> int:
        return len(self._sizes)

    def __iter__(self) -> Iterator[InputFile]:
        return map(self._file, range(len(self)))

    @overload
    def __getitem__(self, at: int) -> InputFile: ...

    @overload
    def __getitem__(self, at: slice) -> list[InputFile]: ...

    def __getitem__(self, at: int | slice) -> InputFile | list[InputFile]:
        rows = range(len(self))[at]
        return self._file(rows) if isinstance(rows, int) else list(map(self._file, rows))

    def add(self, file: InputFile) -> None:
        """Put a file behind the others."""
        path, size, version, relative = file
        if not path.endswith(relative):
            self._odd[len(self)] = relative
            relative = ""
        self._is_ordered &= path > self._last
        self._last = path
        for text in (path, version):
            self._text += text.encode(*CODEC)
            self._ends.append(len(self._text))
        self._sizes.append(UNKNOWN if size is None else size)
        self._relative_chars.append(len(relative))

    def paths(self) -> Iterator[str]:
        """Yield the path of each file."""
        return map(self._path, range(len(self)))

    def in_order(self) -> FileList:
        """Return the files in lexicographic order of path, of the same path only the first."""
        if self._is_ordered:
            return self
        paths = list(self.paths())
        rows = array("Q", sorted(range(len(paths)), key=paths.__getitem__))
        del paths  # as large as the list itself
        different = FileList()
        for row in rows:
            if self._path(row) != different._last:
                different.add(self._file(row))
        return different

    def without(self, rows: Container[int]) -> FileList:
        """Return the files except those at some places."""
        return FileList(self._file(row) for row in range(len(self)) if row not in rows)

    def _path(self, row: int) -> str:
        start, end = self._ends[2 * row : 2 * row + 2]
        return self._text[start:end].decode(*CODEC)

    def _file(self, row: int) -> InputFile:
        start, middle, end = self._ends[2 * row : 2 * row + 3]
        path = self._text[start:middle].decode(*CODEC)
        version = self._text[middle:end].decode(*CODEC)
        size = self._sizes[row]
        relative = path[len(path) - self._relative_chars[row] :]
        if self._odd:
            relative = self._odd.get(row, relative)
        return InputFile(path, None if size == UNKNOWN else size, version, relative)
