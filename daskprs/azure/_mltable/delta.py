"""Delta Lake: the Parquet files of one version of a table, as its log describes them."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow.dataset import get_partition_keys

from daskprs._arrow.arrow_pandas import OneType, ToPandas, cast, one_type
from daskprs._inputs.parquet import RowGroupReader, RowGroupTable, nulls_of
from daskprs.azure._yaml_files.mistakes import refuse
from daskprs.errors import InputError, LoadError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from daskprs._core.mini_batch import MiniBatch
    from daskprs._inputs.source.read_options import ReadOptions
    from daskprs.azure._mltable.content import MLTableContent
    from daskprs.azure._mltable.form import ReadDeltaLake

_COLOR = re.compile(r"\x1b\[[0-9;]*m")
"""A change of color in a terminal: messages of `deltalake` have some."""


def open_delta(
    written: MLTableContent, options: ReadDeltaLake, reading: ReadOptions
) -> DeltaSource:
    """Return the source of a version of a Delta table.

    A table or version that does not exist is a YamlError, and so are several tables. An InputError
    says that the package `deltalake` is missing, or cannot read what the table asks for.
    """
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ImportError as error:
        msg = (
            f'{written.document.name}: read_delta_lake needs the package "deltalake": '
            f'pip install "daskprs[delta]" ({error})'
        )
        raise InputError(msg) from None
    if len(written.entries) != 1:
        refuse([written.mistake(written.read_at, "it reads one folder, and paths name several")])
    place = written.entries[0]
    try:
        table = DeltaTable(place, version=options.version_as_of)
        if options.timestamp_as_of is not None:
            table.load_as_version(options.timestamp_as_of)
        return DeltaSource(place, table, reading)
    except (DeltaError, OSError, ValueError) as error:
        message = f"the Delta table {place} cannot be read: {_COLOR.sub('', str(error))}"
        refuse([written.mistake(written.read_at, message)])
        raise


class DeltaSource(RowGroupTable):
    """Cuts one version of a Delta table, whose files never change, into slices of row groups.

    `place` is the folder or URL of the table, `table` the `deltalake.DeltaTable` at its version.
    """

    def __init__(self, place: str, table: Any, reading: ReadOptions) -> None:
        dataset = table.to_pyarrow_dataset()
        self._place = place
        self._version = int(table.version())
        self._table_id = str(table.metadata().id)
        self._fragments = sorted(dataset.get_fragments(), key=lambda one: str(one.path))
        self._keys = list(table.metadata().partition_columns)
        self._plain = dataset.schema.remove_metadata()
        footers = [one.metadata for one in self._fragments]
        super().__init__(footers, reading)
        self._types = one_type(self._plain, self._nulls(footers))

    def fingerprint(self) -> dict[str, Any]:
        """Return what the plan depends on: no file of a version ever changes."""
        return {
            "kind": "delta",
            "place": self._place,
            "table": self._table_id,
            "version": self._version,
            "schema": str(self._types.schema),
        }

    def reader(self) -> DeltaReader:
        """Return the reader for the agents."""
        return DeltaReader(self._fragments, self._plain, self._types)

    def own_names(self) -> Iterator[tuple[str, str]]:
        """Yield the path of each file, and its name below the folder of the table."""
        for at, fragment in enumerate(self._fragments):
            yield self._path(at), str(fragment.path)

    def _path(self, file: int) -> str:
        return f"{self._place.rstrip('/')}/{self._fragments[file].path}"

    def _named(self, file: int) -> tuple[str, str]:
        name = str(self._fragments[file].path)
        return f"{self._table_id}|{name}", name

    def meta(self) -> pd.DataFrame:
        """Return the table without rows."""
        return self.reader().to_pandas.meta()

    @property
    def path_names(self) -> list[str]:
        """Columns that the table is partitioned by."""
        return self._keys

    def path_values(self, mini_batch: MiniBatch) -> dict[str, Any]:
        """Return the values of the partition columns for a mini-batch."""
        carried = get_partition_keys(self._fragments[mini_batch.piece[0]].partition_expression)
        return {key: carried[key] for key in self._keys}

    def _nulls(self, footers: Sequence[Any]) -> set[str]:
        """Return the columns that hold nulls somewhere, or that a file with rows lacks."""
        found = set[str]()
        for fragment, metadata in zip(self._fragments, footers, strict=True):
            own = metadata.schema.to_arrow_schema()
            found |= nulls_of(metadata, own)
            if metadata.num_rows:
                carried = get_partition_keys(fragment.partition_expression)
                lacking = set(self._plain.names).difference(own.names)
                found |= {name for name in lacking if carried.get(name) is None}
        return found


class DeltaReader(RowGroupReader):
    """Reads slices of row groups in an agent."""

    def __init__(self, fragments: list[Any], schema: pa.Schema, types: OneType) -> None:
        self._fragments = fragments
        self._plain = schema
        self._types = types

    def name(self, file: int) -> str:
        """Return the path of a file below the table's folder."""
        return str(self._fragments[file].path)

    def frame(self, file: int, rows: pa.Table) -> pd.DataFrame:
        """Return rows, which already hold the values of their folders."""
        del file
        return self.to_pandas.frame(rows)

    @cached_property
    def to_pandas(self) -> ToPandas:
        """The form that makes frames of the table."""
        return ToPandas(self._types.schema.empty_table(), self._types.objects)

    def decode(self, file: int, group: int) -> pa.Table:
        """Return a row group with the types of all."""
        fragment, schema = self._fragments[file], self._types.schema
        where = f"{fragment.path}, row group {group}"
        try:
            # Columns that a file lacks, or that its folder is named by, are those of the log.
            table = fragment.subset(row_group_ids=[group]).to_table(schema=self._plain)
        except (pa.ArrowException, OSError) as error:
            msg = f"{where}: {error}"
            raise LoadError(msg) from error
        return cast(table.select(schema.names), self._types, where, LoadError)
