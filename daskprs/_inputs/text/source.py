"""Text files cut into byte ranges, and read range by range."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs._core.mini_batch import MiniBatch, Where
from daskprs._inputs.files.path_columns import FilesTable, PathValues
from daskprs._inputs.source.input_file import files_fingerprint
from daskprs._inputs.text.file import EndsEarly, TextFile, size_of
from daskprs._inputs.text.records import CHUNK_BYTES, NewScan, Records, TextRecords
from daskprs.errors import LoadError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from daskprs._inputs.source.input_file import InputFile
    from daskprs._inputs.source.read_options import ReadOptions


class TextFiles(NamedTuple):
    """The files of an input, and how their records are found; travels to the agents."""

    files: list[InputFile]
    begins: list[int]
    """The first byte of the records of each file, behind a byte order mark and a header."""
    encoding: str
    new_scan: NewScan
    carried: list[PathValues]
    """The values that the path of each file carries."""

    def open(self, place: int) -> TextRecords:
        """Open a file; the caller closes it."""
        file = TextFile(self.files[place], self.encoding)
        return TextRecords(file, self.begins[place], self.new_scan)


class TextPiece(NamedTuple):
    """A byte range of a file: the rows that start there."""

    place: int
    """The number of the file."""
    start: int
    stop: int
    broken: str = ""
    """Why the range cannot be read: the file is cut short behind `stop`."""


class TextSource(FilesTable):
    """Cuts text into byte ranges; a row belongs to the range that it starts in.

    A format is a subclass that knows where the records of each file begin and how they end.
    """

    def __init__(
        self,
        files: Sequence[InputFile],
        reading: ReadOptions,
        begins: list[int],
        new_scan: NewScan,
    ) -> None:
        self._size = reading.size_bytes
        super().__init__(files, reading)
        self._encoding = reading.encoding
        carried = [self._paths.of_file(file.path) for file in files]
        self._text = TextFiles(list(files), begins, reading.encoding, new_scan, carried)
        self._partitions = reading.partitions
        self._firsts = self._number_partitions()

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
        """Return the number of ranges; None if a stream would have to be read."""
        total = 0
        for place in range(len(self._files)):
            wholes = self._wholes(place)
            if wholes is None:
                return None
            total += sum(-(-(stop - start) // self._size) for start, stop in wholes)
        return total

    def where(self, mini_batch: MiniBatch) -> Where:
        """Return the file, and which of its bytes."""
        place, start, stop, _ = mini_batch.piece
        return Where(paths=(self._files[place].path,), bytes=(start, stop))

    @abstractmethod
    def reader(self) -> TextReader:
        """Return the reader for the agents."""

    def meta(self) -> pd.DataFrame:
        """Return the table without rows."""
        return self.reader().meta()

    def _fingerprint(self, kind: str, schema: dict[str, str]) -> dict[str, Any]:
        return {
            "kind": kind,
            "files": files_fingerprint(self._files),
            "schema": schema,
            "types of paths": self._paths.types(),
        }

    def _pieces(self, place: int) -> Iterator[TextPiece]:
        """Yield the ranges of a file; if it is cut short, the last range has the reason."""
        wholes = self._wholes(place)
        if wholes is not None:
            for first, end in wholes:
                for start in range(first, end, self._size):
                    yield TextPiece(place, start, min(start + self._size, end))
            return
        records = self._text.open(place)
        behind = self._text.begins[place]
        try:
            with records.file.unchanged():
                for start, stop in records.cut(self._size):
                    yield TextPiece(place, start, stop)
                    behind = stop
        except EndsEarly as short:
            yield TextPiece(place, behind, short.end, str(short))
        finally:
            records.file.close()

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


class TextReader(ABC):
    """Reads the rows of byte ranges, with one file open at a time; picklable before its first use.

    A format is a subclass that parses records into a frame and finds where rows begin.
    """

    def __init__(self, text: TextFiles) -> None:
        self._text = text
        self._place = 0
        """The number of the file that is open."""
        self._opened: TextRecords | None = None
        self._last: tuple[TextPiece, Records] | None = None
        self._keeps_last = False
        """Whether the records of the last mini-batch are kept, for `offsets`."""

    def load(self, mini_batch: MiniBatch) -> pd.DataFrame:
        """Return the rows that start in a range, with a new index.

        Unreadable records raise a `LoadError` that knows the number of rows, and a file that
        differs from the plan at any time an `InputChanged`.
        """
        records = self._records(mini_batch.piece)
        try:
            return self._rows(records)
        except LoadError as error:
            error.items = len(self._starts(records))
            raise

    def meta(self) -> pd.DataFrame:
        """Return the table without rows."""
        return self._rows(Records(b"", 0))

    def keep_places(self) -> None:
        """Make ready for `offsets` after each mini-batch."""
        self._keeps_last = True

    def offsets(self, mini_batch: MiniBatch) -> list[int]:
        """Return where in its file each row of a mini-batch begins."""
        return self._starts(self._records(mini_batch.piece))

    def place(self, mini_batch: MiniBatch, row: int) -> str:
        """Return the file and line of a row, for people."""
        return self._line_at(self.offsets(mini_batch)[row])

    def close(self) -> None:
        """Close the file."""
        self._last = None
        if self._opened is not None:
            self._opened.file.close()
            self._opened = None

    @abstractmethod
    def _frame(self, records: Records) -> pd.DataFrame:
        """Return records of the open file as rows, without the values of its path."""

    @abstractmethod
    def _starts(self, records: Records) -> list[int]:
        """Return where in the file each row of some records begins."""

    def _rows(self, records: Records) -> pd.DataFrame:
        return self._text.carried[self._place].put_on_frame(self._frame(records))

    def _records(self, piece: TextPiece) -> Records:
        """Return the records of a range.

        The range in which a file is cut short is not tried: a file that is whole by now would give
        a part of a record.
        """
        if self._last is not None and self._last[0] == piece:
            return self._last[1]
        place, start, stop, broken = piece
        opened = self._open(place)
        if broken:
            msg = f"{self._line_at(stop)}{broken.removeprefix(opened.file.path)}"
            raise LoadError(msg)
        with opened.file.unchanged():
            if opened.file.is_stream:
                records = opened.between(start, stop)
            else:
                records = opened.starting_in(start, stop)
        self._last = (piece, records) if self._keeps_last else None
        return records

    def _line_at(self, offset: int) -> str:
        """Return the file and line of a byte, for people; the file is read up to it."""
        file = self._open(self._place).file
        at, line, last = 0, 1, b""
        while at < offset and (chunk := file.read(at, min(CHUNK_BYTES, offset - at))):
            at += len(chunk)
            line += chunk.count(b"\n") + chunk.count(b"\r") - (last + chunk).count(b"\r\n")
            last = chunk[-1:]
        return f"{file.path}, line {line}"

    def _open(self, place: int) -> TextRecords:
        if self._opened is None or place != self._place:
            self.close()
            self._opened = self._text.open(place)
            self._place = place
        return self._opened
