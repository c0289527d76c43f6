"""Parquet: row groups, sliced by their uncompressed size."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from daskprs.core.mini_batch import MiniBatch, Where
from daskprs.errors import LoadError
from daskprs.inputs.arrow_pandas import cast
from daskprs.inputs.input_file import files_fingerprint, open_binary
from daskprs.inputs.parquet_schema import SchemaOfAll, footer
from daskprs.inputs.path_columns import PathColumns, PathValues
from daskprs.inputs.sizes import bytes_per_mini_batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pandas as pd

    from daskprs.inputs.arrow_pandas import OneType, ToPandas
    from daskprs.inputs.input_file import InputFile
    from daskprs.inputs.reading import Reading
    from daskprs.inputs.source import Unit


MOST_ROWS_OF_GROUP = 1 << 40


class RowGroup(NamedTuple):
    """One row group, as the footer describes it."""

    file: int
    number: int
    rows: int
    size_bytes: int


class ParquetSource:
    """Cuts Parquet files into slices of row groups; a mini-batch never crosses a file.

    Parameters
    ----------
    files
        The files, in their order.
    reading
        Size, columns, partition format.

    Raises
    ------
    InputError
        When a file is not Parquet or cut short, or files disagree.

    """

    unit: Unit = "row"
    how_far = ""

    def __init__(self, files: Sequence[InputFile], reading: Reading) -> None:
        self._files = files
        self._size = bytes_per_mini_batch(reading.mini_batch_size)
        self._paths = PathColumns(files, reading)
        self._groups: list[RowGroup] = []
        of_all = SchemaOfAll(reading.columns)
        for place, file in enumerate(files):
            metadata = footer(file)
            of_all.meet(file, metadata)
            for number in range(metadata.num_row_groups):
                group = metadata.row_group(number)
                self._groups.append(RowGroup(place, number, group.num_rows, group.total_byte_size))
        if reading.partitions is not None:
            reading.partitions.check(len(self._groups))
            wanted = set(reading.partitions.wanted)
            self._groups = [one for at, one in enumerate(self._groups) if at in wanted]
        self._types = of_all.result()
        self.columns = self._paths.names_with(self._types.schema.names)

    def prepare(self, scratch: Path) -> None:
        """Do nothing: the files are where they are."""

    def mini_batches(self) -> Iterator[MiniBatch]:
        """Yield slices of row groups, in order."""
        index = first = 0
        for load_group, group in enumerate(self._groups):
            file = self._files[group.file]
            rows = self._rows_of(group)
            for start in range(0, group.rows, rows):
                count = min(rows, group.rows - start)
                yield MiniBatch(
                    index=index,
                    piece=(group.file, group.number, start, count),
                    identity=f"{file.identity}|{group.number}|{start}-{start + count}",
                    items=count,
                    size_bytes=group.size_bytes * count // group.rows,
                    row_lower_bound=first,
                    label=f"{file.name}, row group {group.number}, rows {start}-{start + count}",
                    load_group=load_group,
                )
                index += 1
                first += count

    def count(self) -> int:
        """Return how many mini-batches there are."""
        return sum(-(-group.rows // self._rows_of(group)) for group in self._groups)

    def fingerprint(self) -> dict[str, Any]:
        """Return what the plan depends on."""
        return {
            "kind": "parquet",
            "files": files_fingerprint(self._files),
            "schema": str(self._types.schema.remove_metadata()),
            "booleans with nulls": sorted(self._types.objects),
            "types of paths": self._paths.types(),
        }

    def reader(self) -> ParquetReader:
        """Return the reader for the agents."""
        paths = [file.path for file in self._files]
        values = [self._paths.of_file(path) for path in paths]
        return ParquetReader(paths, values, self._types)

    def where(self, mini_batch: MiniBatch) -> Where:
        """Return the file, the row group, and which of its rows."""
        place, group, start, count = mini_batch.piece
        path = self._files[place].path
        return Where(paths=(path,), row_group=group, rows=(start, start + count))

    def meta(self) -> pd.DataFrame:
        """Return the table without rows."""
        return self._paths.of_file(self._files[0].path).to_pandas(self._types).meta()

    def path_values(self, mini_batch: MiniBatch) -> dict[str, Any]:
        """Return what the path of a mini-batch's file carries."""
        return self._paths.values(self._files[mini_batch.piece[0]].path)

    @property
    def path_names(self) -> list[str]:
        """Columns that come from paths."""
        return self._paths.names

    def _rows_of(self, group: RowGroup) -> int:
        return max(1, group.rows * self._size // max(1, group.size_bytes))


class ParquetReader:
    """Decodes a row group once, and slices it for the mini-batches that follow in it."""

    def __init__(self, paths: list[str], values: list[PathValues], types: OneType) -> None:
        self._paths = paths
        self._values = values
        self._types = types
        self._decoded: tuple[int, int] | None = None
        self._table: pa.Table | None = None

    def load(self, mini_batch: MiniBatch) -> pd.DataFrame:
        """Return the rows of a slice, with a new index."""
        file, group, start, count = mini_batch.piece
        if self._table is None or self._decoded != (file, group):
            self._table = None  # never two row groups at a time
            self._table = self._decode(file, group)
            self._decoded = (file, group)
        rows = self._values[file].put_on(self._table.slice(start, count))
        return self._to_pandas.frame(rows)

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
        return f"{self._paths[file]}, row group {group}, row {start + row}"

    @cached_property
    def _to_pandas(self) -> ToPandas:
        """Made by the agent: the driver, which makes the reader, does without pandas."""
        return self._values[0].to_pandas(self._types)

    def _decode(self, file: int, group: int) -> pa.Table:
        path, schema = self._paths[file], self._types.schema
        where = f"{path}, row group {group}"
        try:
            with open_binary(path) as opened, pq.ParquetFile(opened) as parquet:
                table = parquet.read_row_group(group, columns=schema.names)
        except (pa.ArrowException, OSError) as error:
            msg = f"{where}: {error}"
            raise LoadError(msg) from error
        return cast(table.select(schema.names), schema, where, LoadError)
