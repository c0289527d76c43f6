"""Text files cut into byte ranges, and read range by range."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from daskprs._core.mini_batch import MiniBatch, Where
from daskprs._inputs.costs import CutTable
from daskprs._inputs.files.path_columns import FilesTable, PathValues
from daskprs._inputs.text.file import EndsEarly, TextFile, size_of
from daskprs._inputs.text.records import (
    CHUNK_BYTES,
    EvenGoals,
    GivenGoals,
    NewScan,
    Records,
    TextRecords,
)
from daskprs.errors import DaskprsError, LoadError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    import pandas as pd

    from daskprs._inputs.costs import Cuts
    from daskprs._inputs.source.input_file import InputFile
    from daskprs._inputs.source.read_options import ReadOptions
    from daskprs._inputs.text.records import RowGoals


SAMPLE_BYTES = 64 << 10
"""The beginning of the text that shows how long rows are."""


class TextFiles(NamedTuple):
    """The files of an input, and how their records are found; travels to the agents."""

    files: list[InputFile]
    begins: list[int]
    """The first byte of the records of each file, behind a byte order mark and a header."""
    encoding: str
    new_scan: NewScan
    carried: list[PathValues]
    """The values that the path of each file carries."""
    by_rows: bool
    """Whether ranges are cut at record ends, by a number of rows."""

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


class TextSource(FilesTable, CutTable):
    """Cuts text into byte ranges; a row belongs to the range that it starts in.

    `blanks` are the bytes whose records are no rows, if they have no others.

    A format is a subclass that knows where the records of each file begin and how they end.
    """

    def __init__(
        self,
        files: Sequence[InputFile],
        reading: ReadOptions,
        begins: list[int],
        new_scan: NewScan,
        blanks: bytes,
    ) -> None:
        self._size = reading.size
        self._blanks = blanks
        self._cuts: dict[int, array[int]] = {}
        """The start, the stop and the rows of each range of the files that have been scanned.

        A plan is asked for more than once, and may have millions of ranges.
        """
        by_rows = self._size.unit == "rows"
        self._goals: dict[int, RowGoals] | None = None
        """The rows of the ranges of each file that has rows, if they are cut so."""
        # Lines that are left out show themselves only when they are parsed.
        self.numbers_rows = by_rows and not reading.drop_invalid_lines
        super().__init__(files, reading)
        self._text = TextFiles(
            list(files), begins, reading.encoding, new_scan, self._carried(), by_rows
        )
        self._partitions = reading.partitions
        self._firsts = self._number_partitions()

    def mini_batches(self) -> Iterator[MiniBatch]:
        """Yield byte ranges; those of a stream while it is read."""
        index = first = 0
        for place, file in enumerate(self._files):
            for piece, rows in self._pieces(place):
                _, start, stop, _ = piece
                yield MiniBatch(
                    index=index,
                    piece=piece,
                    identity=f"{file.identity}|{start}-{stop}",
                    items=rows if self.numbers_rows else None,
                    size_bytes=stop - start,
                    row_lower_bound=first if self.numbers_rows else None,
                    label=f"{file.name}, bytes {start}-{stop}",
                )
                index += 1
                first += rows or 0

    def count(self) -> int | None:
        """Return the number of ranges; None if a file would have to be read."""
        if self._text.by_rows:
            is_known = len(self._cuts) == len(self._files)
            return sum(map(len, self._cuts.values())) // 3 if is_known else None
        total = 0
        for place in range(len(self._files)):
            wholes = self._wholes(place)
            if wholes is None:
                return None
            total += sum(-(-(stop - start) // self._size.amount) for start, stop in wholes)
        return total

    def where(self, mini_batch: MiniBatch) -> Where:
        """Return the file, and which of its bytes."""
        place, start, stop, _ = mini_batch.piece
        return Where(paths=(self._files[place].path,), bytes=(start, stop))

    def usual_rows(self) -> float | None:
        """Return how many rows have the size of a mini-batch, by the first rows of the input."""
        with suppress(DaskprsError, OSError), closing(self._text.open(0).file) as file:
            records = TextRecords(file, self._text.begins[0], self._text.new_scan)
            body = records.ended_before(self._text.begins[0] + SAMPLE_BYTES)
            rows = records.count_rows(body, self._blanks)
            return self._size.amount * rows / len(body) if rows else None
        return None

    def part_of(self, block: MiniBatch) -> int:
        """Return the number of the file."""
        place: int = block.piece.place
        return place

    def cut(self, cuts: Cuts, scratch: Path) -> None:
        """Cut each file after so many rows, whose ends are found by one more scan of its bytes."""
        del scratch
        self._goals = {place: GivenGoals(np.cumsum(rows)) for place, rows in cuts.items()}
        self._text = self._text._replace(by_rows=True)
        self.numbers_rows = True

    @abstractmethod
    def reader(self) -> TextReader:
        """Return the reader for the agents."""

    def meta(self) -> pd.DataFrame:
        """Return the table without rows."""
        return self.reader().meta()

    def _pieces(self, place: int) -> Iterator[tuple[TextPiece, int | None]]:
        """Yield the ranges of a file, and their rows; a file cut short gives the last a reason."""
        wholes, size = self._wholes(place), self._size.amount
        if self._text.by_rows:
            wanted = [(0, None)] if wholes is None or self._partitions is None else wholes
            yield from self._pieces_of_rows(place, wanted)
        elif wholes is None:
            yield from self._scanned(
                place, lambda records: ((*one, None) for one in records.cut(size))
            )
        else:
            for first, end in wholes:
                for start in range(first, end, size):
                    yield TextPiece(place, start, min(start + size, end)), None

    def _pieces_of_rows(
        self, place: int, wholes: Sequence[tuple[int, int | None]]
    ) -> Iterator[tuple[TextPiece, int | None]]:
        """Yield the ranges of a file that have so many rows, while it is scanned for record ends.

        The rows of a range that is cut short are not known.
        """
        if place in self._cuts:
            known = self._cuts[place]
            for start, stop, rows in zip(known[::3], known[1::3], known[2::3], strict=True):
                yield TextPiece(place, start, stop), rows
            return
        by_size = EvenGoals(self._size.amount)
        goals = by_size if self._goals is None else self._goals.get(place)
        cuts = array("q")
        if goals is not None:  # else it is a file without rows
            whole_ranges = partial(_ranges_of_rows, goals, self._blanks, wholes)
            for piece, counted in self._scanned(place, whole_ranges):
                yield piece, counted
                if counted is None:
                    return
                cuts.extend((piece.start, piece.stop, counted))
        self._cuts[place] = cuts

    def _scanned(
        self, place: int, ranges: Callable[[TextRecords], Iterable[tuple[int, int, int | None]]]
    ) -> Iterator[tuple[TextPiece, int | None]]:
        """Yield the ranges of a file, and their rows, while the file is read."""
        records = self._text.open(place)
        behind = self._text.begins[place]
        try:
            with records.file.unchanged():
                for start, stop, rows in ranges(records):
                    yield TextPiece(place, start, stop), rows
                    behind = stop
        except EndsEarly as short:
            yield TextPiece(place, behind, short.end, str(short)), None
        finally:
            records.file.close()

    def _wholes(self, place: int) -> list[tuple[int, int]] | None:
        """Return the byte ranges to cut from a file; None for a wanted stream."""
        size = size_of(self._files[place], self._text.encoding)
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
            count += self._partitions.count(size_of(file, self._text.encoding))
        self._partitions.check(count)
        return firsts


def _ranges_of_rows(
    goals: RowGoals,
    blanks: bytes,
    wholes: Sequence[tuple[int, int | None]],
    records: TextRecords,
) -> Iterator[tuple[int, int, int]]:
    for first, end in wholes:
        yield from records.cut_rows(goals, blanks, first, end)


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
            if opened.file.is_stream or self._text.by_rows:
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
