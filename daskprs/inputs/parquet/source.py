"""Parquet: row groups, sliced by their uncompressed size."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from daskprs.core.mini_batch import Where
from daskprs.errors import LoadError
from daskprs.inputs.files.file_versions import opened_unchanged
from daskprs.inputs.files.path_columns import PathColumns, PathValues
from daskprs.inputs.parquet.row_groups import NamedFile, RowGroupReader, RowGroups
from daskprs.inputs.parquet.schema import SchemaOfAll, footer
from daskprs.inputs.source.arrow_pandas import cast
from daskprs.inputs.source.input_file import files_fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import pandas as pd

    from daskprs.core.mini_batch import MiniBatch
    from daskprs.inputs.source.arrow_pandas import OneType, ToPandas
    from daskprs.inputs.source.input_file import InputFile
    from daskprs.inputs.source.read_options import ReadOptions
    from daskprs.inputs.source.source import Unit


class ParquetSource:
    """Cuts Parquet files into slices of row groups; a mini-batch never crosses a file.

    Parameters
    ----------
    files
        The files, in their order.
    reading
        Size, columns, types, partition format.

    Raises
    ------
    InputError
        When a file is not Parquet or cut short, or files disagree.
    OptionError
        For a type that a column cannot have.

    """

    unit: Unit = "row"
    how_far = ""

    def __init__(self, files: Sequence[InputFile], reading: ReadOptions) -> None:
        self._files = files
        self._paths = PathColumns(files, reading)
        of_all = SchemaOfAll(self._paths.of_files, reading.dtypes)
        self._groups = RowGroups(_met(files, of_all), reading)
        self._types = of_all.result()
        self.columns = self._paths.names_with(self._types.schema.names)

    def prepare(self, scratch: Path) -> None:
        """Do nothing: the files are where they are."""

    def mini_batches(self) -> Iterator[MiniBatch]:
        """Return slices of row groups, in order."""
        return self._groups.mini_batches(self._named)

    def _named(self, file: int) -> NamedFile:
        return NamedFile(self._files[file].identity, self._files[file].name)

    def count(self) -> int:
        """Return how many mini-batches there are."""
        return self._groups.count()

    def fingerprint(self) -> dict[str, Any]:
        """Return what the plan depends on."""
        return {
            "kind": "parquet",
            "files": files_fingerprint(self._files),
            "schema": str(self._types.schema.remove_metadata()),
            "booleans with nulls": sorted(self._types.objects),
            "types of paths": self._paths.types(),
        }

    def reader(self) -> RowGroupReader:
        """Return the reader for the agents."""
        files = list(self._files)
        values = [self._paths.of_file(file.path) for file in files]
        return RowGroupReader(ParquetFiles(files, values, self._types))

    def files(self) -> Sequence[InputFile]:
        """Return the files as they were found."""
        return self._files

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


def _met(files: Iterable[InputFile], of_all: SchemaOfAll) -> Iterator[pq.FileMetaData]:
    """Yield the footers of files, one at a time, once they have been compared with the others."""
    for file in files:
        metadata = footer(file)
        of_all.meet(file, metadata)
        yield metadata


class ParquetFiles:
    """Decodes row groups of files."""

    def __init__(self, files: list[InputFile], values: list[PathValues], types: OneType) -> None:
        self._files = files
        self._values = values
        self._types = types

    def name(self, file: int) -> str:
        """Return the path of a file."""
        return self._files[file].path

    def frame(self, file: int, rows: pa.Table) -> pd.DataFrame:
        """Return rows of a file, with what its path carries."""
        return self._to_pandas.frame(self._values[file].put_on(rows))

    @cached_property
    def _to_pandas(self) -> ToPandas:
        """Made by the agent: the driver, which makes the reader, does without pandas."""
        return self._values[0].to_pandas(self._types)

    def decode(self, file: int, group: int) -> pa.Table:
        """Return a row group with the types of all.

        Raises
        ------
        InputChanged
            When the file is not the one that was found.

        """
        found, schema = self._files[file], self._types.schema
        where = f"{found.path}, row group {group}"
        try:
            with opened_unchanged(found) as opened, pq.ParquetFile(opened) as parquet:
                table = parquet.read_row_group(group, columns=schema.names)
        except (pa.ArrowException, OSError) as error:
            msg = f"{where}: {error}"
            raise LoadError(msg) from error
        return cast(table.select(schema.names), self._types, where, LoadError)
