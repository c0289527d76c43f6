"""How those who cut their input by hand cut it, read it and format what they made of it."""

from __future__ import annotations

import io
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas as pd
    import pyarrow as pa


class Slice(NamedTuple):
    """Some rows of one row group of a Parquet file."""

    path: str
    row_group: int
    start: int
    rows: int


class ByteRange(NamedTuple):
    """The rows of a CSV file that start between two offsets."""

    path: str
    start: int
    stop: int


Piece = Slice | ByteRange


def paths(folder: str, count: int) -> list[list[str]]:
    """Return the files of a folder in order, so many at a time."""
    names = sorted(str(path) for path in Path(folder).iterdir())
    return [names[first : first + count] for first in range(0, len(names), count)]


def pieces(source: str, size_bytes: int) -> list[Piece]:
    """Cut a Parquet file, or a folder of CSV files."""
    if Path(source).is_file():
        return list(_slices(source, size_bytes))
    return list(_byte_ranges(source, size_bytes))


def grouped(every: list[Piece]) -> list[list[Piece]]:
    """Return the pieces of each row group together, so that it is decoded once."""
    return [
        list(group)
        for _, group in groupby(every, lambda piece: (piece.path, piece[1]))  # start of a range
    ]


def row_ranges(rows: int, row_bytes: float, size_bytes: int) -> list[tuple[int, int]]:
    """Cut rows that are in memory."""
    step = max(1, int(size_bytes / row_bytes))
    return [(start, min(start + step, rows)) for start in range(0, rows, step)]


def load(piece: Piece) -> pd.DataFrame:
    """Return the rows of a piece."""
    if isinstance(piece, Slice):
        table = _row_group(piece.path, piece.row_group)
        frame: pd.DataFrame = table.slice(piece.start, piece.rows).to_pandas()
        return frame
    return _parse(piece)


def worked(run: Callable[[pd.DataFrame], pd.DataFrame], piece: Piece) -> bytes:
    """Return the text of what `run` makes of a piece."""
    return csv_text(run(load(piece)))


def csv_text(frame: pd.DataFrame) -> bytes:
    """Return a frame as text, by the fastest writer at hand: Arrow's."""
    import pyarrow as pa
    from pyarrow import csv

    sink = pa.BufferOutputStream()
    table = pa.Table.from_pandas(frame, preserve_index=False)
    csv.write_csv(table, sink, csv.WriteOptions(include_header=False))
    text: bytes = sink.getvalue().to_pybytes()
    return text


def lines_text(lines: list[str]) -> bytes:
    """Return lines as text."""
    return "".join(f"{line}\n" for line in lines).encode()


def _slices(path: str, size_bytes: int) -> Iterator[Slice]:
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(path)
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        row_bytes = group.total_byte_size / group.num_rows
        for start, stop in row_ranges(group.num_rows, row_bytes, size_bytes):
            yield Slice(path, number, start, stop - start)


def _byte_ranges(folder: str, size_bytes: int) -> Iterator[ByteRange]:
    for path in sorted(Path(folder).iterdir()):
        whole = path.stat().st_size
        last = max(1, whole // size_bytes) - 1  # with the rest, in which no row might start
        for number in range(last + 1):
            stop = whole if number == last else (number + 1) * size_bytes
            yield ByteRange(str(path), number * size_bytes, stop)


@lru_cache(maxsize=1)
def _row_group(path: str, number: int) -> pa.Table:
    """Return a row group, kept for its next slices."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        return file.read_row_group(number, use_threads=False)


def _parse(piece: ByteRange) -> pd.DataFrame:
    import pandas as pd

    with Path(piece.path).open("rb") as file:
        names = file.readline().decode().strip().replace('"', "").split(",")
        if piece.start:
            file.seek(piece.start - 1)
            file.readline()  # it belongs to the range before
        text = file.read(max(0, piece.stop - file.tell()))
        if not text.endswith(b"\n"):  # else the next row starts where the next range does
            text += file.readline()
    return pd.read_csv(io.BytesIO(text), header=None, names=names)
