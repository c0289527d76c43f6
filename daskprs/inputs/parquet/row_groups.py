"""Row groups of Parquet files, whoever names the files, in slices by their uncompressed size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from daskprs.core.mini_batch import MiniBatch
from daskprs.inputs.source.sizes import bytes_per_mini_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pandas as pd
    import pyarrow as pa

    from daskprs.inputs.source.read_options import ReadOptions

MOST_ROWS_OF_GROUP = 1 << 40


class RowGroup(NamedTuple):
    """One row group, as the footer describes it."""

    file: int
    number: int
    rows: int
    size_bytes: int


class NamedFile(NamedTuple):
    """The identity and the name of a file."""

    identity: str
    """Identity of the content, as far as it is known without reading the file."""
    name: str
    """For people."""


class RowGroups:
    """The row groups of an input, and how they are sliced; a mini-batch never crosses one.

    Parameters
    ----------
    footers
        Of the files, in their order.
    reading
        The size of mini-batches, and which row groups are wanted.

    """

    def __init__(self, footers: Iterable[Any], reading: ReadOptions) -> None:
        self._size = bytes_per_mini_batch(reading.mini_batch_size)
        groups = [one for at, footer in enumerate(footers) for one in _of_footer(at, footer)]
        if reading.partitions is not None:
            reading.partitions.check(len(groups))
            wanted = set(reading.partitions.wanted)
            groups = [one for at, one in enumerate(groups) if at in wanted]
        self._groups = groups

    def mini_batches(self, file: Callable[[int], NamedFile]) -> Iterator[MiniBatch]:
        """Yield slices of row groups, in order; `file` says what one is called."""
        index = first = 0
        for load_group, group in enumerate(self._groups):
            named, rows = file(group.file), self._rows_of(group)
            for start in range(0, group.rows, rows):
                count = min(rows, group.rows - start)
                yield MiniBatch(
                    index=index,
                    piece=(group.file, group.number, start, count),
                    identity=f"{named.identity}|{group.number}|{start}-{start + count}",
                    items=count,
                    size_bytes=group.size_bytes * count // group.rows,
                    row_lower_bound=first,
                    label=f"{named.name}, row group {group.number}, rows {start}-{start + count}",
                    load_group=load_group,
                )
                index += 1
                first += count

    def count(self) -> int:
        """Return how many mini-batches there are."""
        return sum(-(-group.rows // self._rows_of(group)) for group in self._groups)

    def _rows_of(self, group: RowGroup) -> int:
        return max(1, group.rows * self._size // max(1, group.size_bytes))


def _of_footer(file: int, footer: Any) -> Iterator[RowGroup]:
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        yield RowGroup(file, number, group.num_rows, group.total_byte_size)


class Decoder(Protocol):
    """The operations that differ between kinds of tables."""

    def decode(self, file: int, group: int) -> pa.Table:
        """Return a row group."""
        ...

    def frame(self, file: int, rows: pa.Table) -> pd.DataFrame:
        """Return rows of a file, with an index from 0."""
        ...

    def name(self, file: int) -> str:
        """Return what a file is called."""
        ...


class RowGroupReader:
    """Decodes a row group once, and slices it for the mini-batches that follow in it."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._decoded: tuple[int, int] | None = None
        self._table: pa.Table | None = None

    def load(self, mini_batch: MiniBatch) -> pd.DataFrame:
        """Return the rows of a slice, with a new index."""
        file, group, start, count = mini_batch.piece
        if self._table is None or self._decoded != (file, group):
            self._table = None  # never two row groups at a time
            self._table = self._decoder.decode(file, group)
            self._decoded = (file, group)
        return self._decoder.frame(file, self._table.slice(start, count))

    def close(self) -> None:
        """Let go of the row group."""
        self._table = None

    def keep_places(self) -> None:
        """Do nothing: a slice says where its rows are."""

    def offsets(self, mini_batch: MiniBatch) -> list[int]:
        """Return a number for each row of a mini-batch that no other row of its file has."""
        _, group, start, count = mini_batch.piece
        return [group * MOST_ROWS_OF_GROUP + row for row in range(start, start + count)]

    def place(self, mini_batch: MiniBatch, row: int) -> str:
        """Return the file, row group and row, for people."""
        file, group, start, _ = mini_batch.piece
        return f"{self._decoder.name(file)}, row group {group}, row {start + row}"
