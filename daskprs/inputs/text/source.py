"""The base of all text sources: files cut into byte ranges, and read range by range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs.core.mini_batch import MiniBatch, Where
from daskprs.errors import InputChanged, LoadError
from daskprs.inputs.files.path_columns import PathColumns
from daskprs.inputs.source.input_file import files_fingerprint
from daskprs.inputs.source.sizes import bytes_per_mini_batch
from daskprs.inputs.text.file import EndsEarly, TextFile, size_of
from daskprs.inputs.text.records import NewScan, Records, TextRecords

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from daskprs.inputs.source.input_file import InputFile
    from daskprs.inputs.source.read_options import ReadOptions
    from daskprs.inputs.source.source import Unit

CHUNK_BYTES = 1 << 20


class TextFiles(NamedTuple):
    """The files of an input, as far as reading their records goes; travels to the agents."""

    files: list[InputFile]
    begins: list[int]
    """Where the first record of each starts, behind a byte order mark and a header."""
    encoding: str
    new_scan: NewScan

    def open(self, place: int) -> OpenFile:
        """Open a file; the caller closes it."""
        file = TextFile(self.files[place], self.encoding)
        return OpenFile(file, TextRecords(file, self.begins[place], self.new_scan))


class TextPiece(NamedTuple):
    """A byte range of a file: the rows that start there."""

    place: int
    """The number of the file."""
    start: int
    stop: int
    broken: str = ""
    """Why the range cannot be read: the file is cut short behind `stop`."""


class OpenFile(NamedTuple):
    """A file that is open, and its records."""

    file: TextFile
    records: TextRecords


class TextSource:
    """Cuts text into byte ranges; a row belongs to the range that it starts in.

    Parameters
    ----------
    files
        The files, in their order.
    reading
        Size, encoding, and what paths carry.
    text
        The same files, with where their records begin and how these end.

    """

    unit: Unit = "row"
    how_far = ""

    def __init__(self, files: Sequence[InputFile], reading: ReadOptions, text: TextFiles) -> None:
        self._files = files
        self._encoding = reading.encoding
        self._size = bytes_per_mini_batch(reading.mini_batch_size)
        self._paths = PathColumns(files, reading)
        self._text = text
        self._partitions = reading.partitions
        self._firsts = self._number_partitions()

    def prepare(self, scratch: Path) -> None:
        """Do nothing: the files are where they are."""

    def mini_batches(self) -> Iterator[MiniBatch]:
        """Yield byte ranges; those of a stream while it is read."""
        index = 0
        for place, file in enumerate(self._files):
            for piece in self._pieces(place):
                _, start, stop, _ = piece
                yield MiniBatch(
                    index=index,
                    piece=piece,
                    identity=f"{file.identity}|{start}-{stop}",
                    size_bytes=stop - start,
                    label=f"{file.name}, bytes {start}-{stop}",
                )
                index += 1

    def count(self) -> int | None:
        """Return the number of ranges; None if it takes reading a stream."""
        wholes = [self._wholes(place) for place in range(len(self._files))]
        if any(whole is None for whole in wholes):
            return None
        known = [one for whole in wholes for one in whole or ()]
        return sum(-(-(stop - start) // self._size) for start, stop in known)

    def files(self) -> Sequence[InputFile]:
        """Return the files as they were found."""
        return self._files

    def where(self, mini_batch: MiniBatch) -> Where:
        """Return the file, and which of its bytes."""
        place, start, stop, _ = mini_batch.piece
        return Where(paths=(self._files[place].path,), bytes=(start, stop))

    def path_values(self, mini_batch: MiniBatch) -> dict[str, Any]:
        """Return what the path of a mini-batch's file carries."""
        return self._paths.values(self._files[mini_batch.piece[0]].path)

    @property
    def path_names(self) -> list[str]:
        """Columns that come from paths."""
        return self._paths.names

    def _fingerprint(self, kind: str, schema: dict[str, str]) -> dict[str, Any]:
        files = files_fingerprint(self._files)
        return {
            "kind": kind,
            "files": files,
            "schema": schema,
            "types of paths": self._paths.types(),
        }

    def _pieces(self, place: int) -> Iterator[TextPiece]:
        """Yield the ranges of a file; the last one of a file that is cut short says so."""
        wholes = self._wholes(place)
        if wholes is not None:
            for first, end in wholes:
                for start in range(first, end, self._size):
                    yield TextPiece(place, start, min(start + self._size, end))
            return
        opened = self._text.open(place)
        behind = self._text.begins[place]
        try:
            for start, stop in opened.records.cut(self._size):
                yield TextPiece(place, start, stop)
                behind = stop
            opened.file.check()
        except InputChanged:
            raise
        except EndsEarly as short:
            opened.file.check(failed=True)
            yield TextPiece(place, behind, short.end, str(short))
        except LoadError:
            opened.file.check(failed=True)
            raise
        finally:
            opened.file.close()

    def _wholes(self, place: int) -> list[tuple[int, int]] | None:
        """Return the byte ranges to cut from a file; None for a wanted stream."""
        size = size_of(self._files[place], self._encoding)
        if self._partitions is None:
            return None if size is None else [(0, size)]
        if size is None:
            return None if self._firsts[place] in self._partitions.wanted else []
        return self._partitions.ranges(size, self._firsts[place])

    def _number_partitions(self) -> list[int]:
        """Return the number of the first partition of each file."""
        if self._partitions is None:
            return []
        firsts, count = [], 0
        for file in self._files:
            firsts.append(count)
            count += self._partitions.count(size_of(file, self._encoding))
        self._partitions.check(count)
        return firsts


class OpenText:
    """The one file that a reader has open."""

    def __init__(self, text: TextFiles) -> None:
        self._text = text
        self._place = -1
        self._opened: OpenFile | None = None
        self._last: tuple[TextPiece, Records] | None = None
        self.keeps = False
        """Whether the last mini-batch's records are kept, for later look-ups of their places."""

    def load(self, piece: TextPiece) -> Records:
        """Return the records of a mini-batch; a file that was open before is closed.

        Raises
        ------
        InputChanged
            When the file differs from the one that was found, at any time.
        LoadError
            When the records cannot be read. The range in which a file is cut short is not tried: a
            file that is whole by now would give a part of a record.

        """
        if self._last is not None and self._last[0] == piece:
            return self._last[1]
        place, start, stop, broken = piece
        if broken:
            where = self.line_at(place, stop)
            path = self._text.files[place].path
            msg = f"{where}{broken.removeprefix(path)}"
            raise LoadError(msg)
        opened = self._open(place)
        try:
            if opened.file.is_stream:
                records = opened.records.between(start, stop)
            else:
                records = opened.records.starting_in(start, stop)
        except InputChanged:
            raise
        except LoadError:
            opened.file.check(failed=True)
            raise
        opened.file.check()
        self._last = (piece, records) if self.keeps else None
        return records

    def line_at(self, place: int, offset: int) -> str:
        """Return the file and line of a byte, for people; the file is read up to it."""
        file = self._open(place).file
        at, line, last = 0, 1, b""
        while at < offset and (chunk := file.read(at, min(CHUNK_BYTES, offset - at))):
            at += len(chunk)
            line += chunk.count(b"\n") + chunk.count(b"\r") - (last + chunk).count(b"\r\n")
            last = chunk[-1:]
        return f"{file.path}, line {line}"

    def close(self) -> None:
        """Close the file."""
        self._last = None
        if self._opened is not None:
            self._opened.file.close()
            self._opened = None

    def _open(self, place: int) -> OpenFile:
        if self._opened is None or place != self._place:
            self.close()
            self._opened = self._text.open(place)
            self._place = place
        return self._opened
