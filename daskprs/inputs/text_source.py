"""What all text has in common: files cut into byte ranges, and read range by range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs.core.mini_batch import MiniBatch
from daskprs.inputs.input_file import files_fingerprint
from daskprs.inputs.path_columns import PathColumns
from daskprs.inputs.sizes import bytes_per_mini_batch
from daskprs.inputs.text_file import TextFile, size_of
from daskprs.inputs.text_records import LineScan, TextRecords, delimited_scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from daskprs.inputs.input_file import InputFile
    from daskprs.inputs.reading import Reading
    from daskprs.inputs.source import Unit


class TextFiles(NamedTuple):
    """The files of an input, as far as reading their records goes; travels to the agents."""

    paths: list[str]
    begins: list[int]
    """Where the first record of each starts, behind a byte order mark and a header."""
    encoding: str
    delimiter: str | None
    """None where each line is a record, whatever is in it."""

    def open(self, place: int) -> tuple[TextFile, TextRecords]:
        """Open a file; the caller closes it."""
        file = TextFile(self.paths[place], self.encoding)
        scan = LineScan if self.delimiter is None else delimited_scan(self.delimiter)
        return file, TextRecords(file, self.begins[place], scan)


class TextSource:
    """Cuts text into byte ranges; a row belongs to the range that it starts in.

    Parameters
    ----------
    files
        The files, in their order.
    reading
        Size, encoding, and what paths carry.

    """

    unit: Unit = "row"

    def __init__(self, files: Sequence[InputFile], reading: Reading) -> None:
        self._files = files
        self._encoding = reading.encoding
        self._size = bytes_per_mini_batch(reading.mini_batch_size)
        self._paths = PathColumns(files, reading)
        self._text = TextFiles([], [], reading.encoding, None)

    def prepare(self, scratch: Path) -> None:
        """Do nothing: the files are where they are."""

    def mini_batches(self) -> Iterator[MiniBatch]:
        """Yield byte ranges; of a stream, as it is read."""
        index = 0
        for place, file in enumerate(self._files):
            for start, stop in self._ranges(place):
                yield MiniBatch(
                    index=index,
                    piece=(place, start, stop),
                    identity=f"{file.identity}|{start}-{stop}",
                    size_bytes=stop - start,
                    label=f"{file.name}, bytes {start}-{stop}",
                )
                index += 1

    def count(self) -> int | None:
        """Return how many ranges there are; None where a stream has to be read for it."""
        sizes = [size_of(file, self._encoding) for file in self._files]
        known = [size for size in sizes if size is not None]
        return sum(-(-size // self._size) for size in known) if len(known) == len(sizes) else None

    def path_values(self, mini_batch: MiniBatch) -> dict[str, Any]:
        """Return what the path of a mini-batch's file carries."""
        return self._paths.values(self._files[mini_batch.piece[0]].path)

    @property
    def path_names(self) -> list[str]:
        """Columns that come from paths."""
        return self._paths.names

    def _fingerprint(self, kind: str, schema: dict[str, str]) -> dict[str, Any]:
        files = files_fingerprint(self._files)
        return {"kind": kind, "files": files, "schema": schema}

    def _ranges(self, place: int) -> Iterator[tuple[int, int]]:
        size = size_of(self._files[place], self._encoding)
        if size is not None:
            for start in range(0, size, self._size):
                yield start, min(start + self._size, size)
            return
        file, records = self._text.open(place)
        try:
            yield from records.cut(self._size)
        finally:
            file.close()


class OpenText:
    """The one file that a reader has open."""

    def __init__(self, text: TextFiles) -> None:
        self._text = text
        self._place = -1
        self._opened: tuple[TextFile, TextRecords] | None = None

    def records(self, place: int) -> TextRecords:
        """Return the records of a file; the one before is closed."""
        return self._open(place)[1]

    def line_at(self, place: int, offset: int) -> str:
        """Return the file and line of a byte, for people; the file is read up to it."""
        head = self._open(place)[0].read(0, offset)
        line = head.count(b"\n") + head.count(b"\r") - head.count(b"\r\n") + 1
        return f"{self._text.paths[place]}, line {line}"

    def close(self) -> None:
        """Close the file."""
        if self._opened is not None:
            self._opened[0].close()
            self._opened = None

    def _open(self, place: int) -> tuple[TextFile, TextRecords]:
        if self._opened is None or place != self._place:
            self.close()
            self._opened = self._text.open(place)
            self._place = place
        return self._opened
