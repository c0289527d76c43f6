"""Parquet files: one schema from their footers, and slices of row groups by uncompressed size."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from daskprs._arrow.arrow_pandas import (
    cast,
    noted_by,
    one_type,
    without_categories,
    without_index,
)
from daskprs._core.mini_batch import MiniBatch, Where
from daskprs._inputs.costs import CutTable
from daskprs._inputs.files.file_versions import opened_unchanged
from daskprs._inputs.files.listing import current_listing
from daskprs._inputs.files.path_columns import PathValues, TypedFilesReader, TypedFilesTable
from daskprs._inputs.source.columns import check_columns
from daskprs._inputs.source.input_file import is_url, of_each_file, open_binary
from daskprs._inputs.source.source import TableSource
from daskprs.errors import InputError, LoadError, Option

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    import pandas as pd

    from daskprs._arrow.arrow_pandas import OneType
    from daskprs._inputs.costs import Cuts
    from daskprs._inputs.source.input_file import InputFile
    from daskprs._inputs.source.read_options import ReadOptions

MOST_ROWS_OF_GROUP = 1 << 40


class RowGroup(NamedTuple):
    """One row group, as the footer describes it."""

    file: int
    number: int
    rows: int
    size_bytes: int


class RowGroupTable(TableSource):
    """A table in Parquet files, cut into slices of row groups; a mini-batch never crosses one.

    A subclass knows the files, by the order of their footers.
    """

    def __init__(self, footers: Iterable[Any], reading: ReadOptions) -> None:
        self._size = reading.size
        self._cuts: Cuts | None = None
        """The rows of the slices of each row group, if they are not cut by size."""
        groups = [one for at, footer in enumerate(footers) for one in _of_footer(at, footer)]
        if reading.partitions is not None:
            reading.partitions.check(len(groups))
            wanted = set(reading.partitions.wanted)
            groups = [one for at, one in enumerate(groups) if at in wanted]
        self._groups = groups

    @abstractmethod
    def _path(self, file: int) -> str:
        """Return the path of a file."""

    @abstractmethod
    def _named(self, file: int) -> tuple[str, str]:
        """Return the identity of a file's content, and the file's name for people."""

    def mini_batches(self) -> Iterator[MiniBatch]:
        """Yield slices of row groups, in order."""
        index = first = 0
        for load_group, group in enumerate(self._groups):
            (identity, name), start = self._named(group.file), 0
            for count in self._counts(load_group, group):
                yield MiniBatch(
                    index=index,
                    piece=(group.file, group.number, start, count),
                    identity=f"{identity}|{group.number}|{start}-{start + count}",
                    items=count,
                    size_bytes=group.size_bytes * count // group.rows,
                    row_lower_bound=first,
                    label=f"{name}, row group {group.number}, rows {start}-{start + count}",
                    load_group=load_group,
                )
                index += 1
                first += count
                start += count

    def _counts(self, number: int, group: RowGroup) -> Iterable[int]:
        """Return the rows of each slice of a row group."""
        if self._cuts is not None:
            return self._cuts[number].tolist() if number in self._cuts else ()
        rows = self._rows_of(group)
        return (min(rows, group.rows - start) for start in range(0, group.rows, rows))

    def count(self) -> int:
        """Return how many mini-batches there are."""
        if self._cuts is not None:
            return sum(map(len, self._cuts.values()))
        return sum(-(-group.rows // self._rows_of(group)) for group in self._groups)

    def usual_rows(self) -> float | None:
        """Return how many rows the first slice has."""
        first = self._groups[0] if self._groups else None
        return None if first is None else min(self._rows_of(first), first.rows)

    def _rows_of(self, group: RowGroup) -> int:
        return self._size.rows_of(group.rows, group.size_bytes)

    def where(self, mini_batch: MiniBatch) -> Where:
        """Return the file, the row group, and which of its rows."""
        file, group, start, count = mini_batch.piece
        return Where(paths=(self._path(file),), row_group=group, rows=(start, start + count))


def _of_footer(file: int, footer: Any) -> Iterator[RowGroup]:
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        yield RowGroup(file, number, group.num_rows, group.total_byte_size)


class RowGroupReader(ABC):
    """Decodes a row group once, and slices it for the mini-batches that follow in it.

    A subclass decodes row groups, and makes frames of their rows.
    """

    _decoded: tuple[int, int] | None = None
    _table: pa.Table | None = None

    @abstractmethod
    def name(self, file: int) -> str:
        """Return the name of a file, for people."""

    @abstractmethod
    def decode(self, file: int, group: int) -> pa.Table:
        """Return a row group."""

    @abstractmethod
    def frame(self, file: int, rows: pa.Table) -> pd.DataFrame | pa.Table:
        """Return rows of a file, with an index from 0 if they are a frame."""

    def load(self, mini_batch: MiniBatch) -> pd.DataFrame | pa.Table:
        """Return the rows of a slice, with a new index."""
        file, group, start, count = mini_batch.piece
        # A row group is decoded as a whole. Mini-batches that are slices of one group share it.
        if self._table is None or self._decoded != (file, group):
            self._table = None  # never two row groups at a time
            self._table = self.decode(file, group)
            self._decoded = (file, group)
        return self.frame(file, self._table.slice(start, count))

    def close(self) -> None:
        """Let go of the row group."""
        self._table = None

    def keep_places(self) -> None:
        """Make ready for `offsets`."""
        return  # a slice says where its rows are

    def offsets(self, mini_batch: MiniBatch) -> list[int]:
        """Return a number for each row of a mini-batch that no other row of its file has."""
        _, group, start, count = mini_batch.piece
        return [group * MOST_ROWS_OF_GROUP + row for row in range(start, start + count)]

    def place(self, mini_batch: MiniBatch, row: int) -> str:
        """Return the file, row group and row, for people."""
        file, group, start, _ = mini_batch.piece
        return f"{self.name(file)}, row group {group}, row {start + row}"


# ---- one schema for many files ----


def footer(file: InputFile) -> pq.FileMetaData:
    """Return the footer of a file; another kind of file, or a part of one, is an `InputError`."""
    try:
        with open_binary(file.path) as opened:
            return pq.read_metadata(opened)
    except (pa.ArrowException, OSError) as error:
        msg = f"{file.path} cannot be read as a Parquet file: {error}"
        raise InputError(msg) from error


class SchemaOfAll:
    """Puts the schemas of files together as they are met.

    Files may disagree on columns that are not wanted; `columns` are the wanted ones, if not all.
    """

    def __init__(self, columns: Sequence[str] | None, reading: ReadOptions) -> None:
        self._as_arrow = reading.as_arrow
        self._columns = columns
        self._dtypes = reading.dtypes
        self._first: str = ""
        self._schemas: list[pa.Schema] = []
        self._having: list[str] = []
        """The first file with each of the schemas."""
        self.with_nulls = set[str]()
        """Integers and booleans that may be null in some file."""

    def take(self, file: InputFile, schema: pa.Schema) -> pa.Schema:
        """Take a file, and return its wanted columns.

        It must have the columns of earlier files, each once.
        """
        schema = _plain(schema)
        _refuse_doubles(file.path, schema.names)
        if self._columns is not None:
            self._check_wanted(file, schema)
            wanted = [schema.field(name) for name in self._columns]
            schema = pa.schema(wanted, schema.metadata)
        if not self._schemas:
            self._first = file.path
        else:
            _compare_names(self._first, self._schemas[0], file.path, schema)
        if not any(schema.equals(known, check_metadata=True) for known in self._schemas):
            self._schemas.append(schema)
            self._having.append(file.path)
        return schema

    def result(self) -> OneType:
        """Return the one schema, in which integers that are null anywhere are floats.

        Pandas does the same when it reads all files as one. Where rows stay Arrow, integers do,
        too. Columns of the option `dtypes` have the types that are given.
        """
        schema = self._schemas[0]
        for one, path in zip(self._schemas, self._having, strict=True):
            try:
                schema = pa.unify_schemas([schema, one], promote_options="permissive")
            except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                msg = (
                    f"{path} and the files before it disagree on the type of a column: {error}. "
                    "Write the column with one type, or leave it out by "
                )
                raise InputError(msg, Option("columns"), ".") from error
        schema = noted_by(self._schemas, schema)
        if self._dtypes:
            # Its import of pandas takes a third of a second in the driver.
            from daskprs._inputs.source.given_types import with_dtypes

            schema = with_dtypes(schema, self._dtypes, self.with_nulls)
        return one_type(schema, self.with_nulls, self._dtypes, as_arrow=self._as_arrow)

    def _check_wanted(self, file: InputFile, schema: pa.Schema) -> None:
        wanted = self._columns or ()
        if not self._schemas:
            check_columns(wanted, schema.names, "columns")
        there = set(schema.names)
        missing = [name for name in wanted if name not in there]
        if missing:
            msg = f"{file.path} lacks columns that {self._first} has: {', '.join(missing)}."
            raise InputError(msg)


def nulls_of(metadata: pq.FileMetaData, schema: pa.Schema, known: Collection[str] = ()) -> set[str]:
    """Return the integers and booleans with nulls; without statistics there may be some.

    Columns that are `known` to hold nulls are left out.
    """
    leaves = _leaves(metadata.schema.to_arrow_schema())
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    groups = [group for group in groups if group.num_rows > 0]
    found = set()
    for field in schema:
        if field.name in known or not groups:
            continue
        if pa.types.is_null(field.type):
            found.add(field.name)
        if not (pa.types.is_integer(field.type) or pa.types.is_boolean(field.type)):
            continue
        place = leaves[field.name]
        if metadata.schema.column(place).max_definition_level == 0:
            continue
        if any(_may_have_nulls(group.column(place).statistics) for group in groups):
            found.add(field.name)
    return found


def _with_uuids(metadata: pq.FileMetaData) -> pa.Schema:
    """Return the schema of a file with the UUIDs that a row group has, whoever wrote the file.

    Of a footer alone, Arrow sees them only where Arrow itself has noted its types.
    """
    schema = metadata.schema.to_arrow_schema()
    stored = pa.uuid().storage_type
    leaves = _leaves(schema) if stored in schema.types else {}
    for place, type_ in enumerate(schema.types):
        if type_ == stored:
            field = schema.field(place)
            leaf = metadata.schema.column(leaves[field.name])
            if leaf.logical_type.type == "UUID":
                schema = schema.set(place, field.with_type(pa.uuid()))
    return schema


def _may_have_nulls(statistics: pq.Statistics | None) -> bool:
    return statistics is None or not statistics.has_null_count or statistics.null_count > 0


def _leaves(schema: pa.Schema) -> dict[str, int]:
    """Return the first of the columns that Parquet stores for each field."""
    places, place = {}, 0
    for field in schema:
        places[field.name] = place
        place += _count_leaves(field.type)
    return places


def _count_leaves(type_: pa.DataType) -> int:
    if isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    inner = [type_.field(place).type for place in range(type_.num_fields)]
    return sum(map(_count_leaves, inner)) if inner else 1


def _plain(schema: pa.Schema) -> pa.Schema:
    """Return a schema without dictionaries, without an unnamed index, and with no index at all.

    Categories differ between row groups, so columns hold the values instead.
    """
    schema = without_index(schema)
    types = [one.value_type if pa.types.is_dictionary(one) else one for one in schema.types]
    return without_categories(pa.schema([*zip(schema.names, types, strict=True)], schema.metadata))


def _refuse_doubles(path: str, names: Sequence[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        msg = f"{path} has more than one column {twice[0]!r}: rename them."
        raise InputError(msg)


def _compare_names(one: str, first: pa.Schema, other: str, second: pa.Schema) -> None:
    missing = sorted(set(first.names) - set(second.names))
    more = sorted(set(second.names) - set(first.names))
    if missing or more:
        parts = [f"{', '.join(missing)} only in {one}"] if missing else []
        parts += [f"{', '.join(more)} only in {other}"] if more else []
        msg = f"the files disagree on their columns: {'; '.join(parts)}. Name the common ones by "
        raise InputError(msg, Option("columns"), ".")


# ---- the source of files ----


class ParquetSource(RowGroupTable, TypedFilesTable, CutTable):
    """Cuts Parquet files into slices of row groups."""

    numbers_rows = True

    def __init__(self, files: Sequence[InputFile], reading: ReadOptions) -> None:
        TypedFilesTable.__init__(self, files, reading)
        self._as_arrow = reading.as_arrow
        of_all = SchemaOfAll(self._paths.of_files, reading)
        RowGroupTable.__init__(self, _met(files, of_all, reading.store_requests), reading)
        self._types = of_all.result()
        self.columns = self._paths.names_with(self._types.schema.names)

    def _path(self, file: int) -> str:
        return self._files[file].path

    def _named(self, file: int) -> tuple[str, str]:
        return self._files[file].identity, self._files[file].name

    def part_of(self, block: MiniBatch) -> int:
        """Return the number of the row group."""
        return block.load_group or 0

    def cut(self, cuts: Cuts, scratch: Path) -> None:
        """Cut the row groups."""
        del scratch
        self._cuts = cuts

    def reader_of(self, column: str) -> ParquetReader:
        """Return a reader that decodes one column, unless that comes from paths."""
        types = self._types
        if column not in types.schema.names:
            return self.reader()
        one = types._replace(schema=pa.schema([types.schema.field(column)]))
        return self._reader_of(one, [PathValues(None, [])] * len(self._files))

    def fingerprint(self) -> dict[str, Any]:
        """Return the fingerprint of the plan."""
        plan = self._fingerprint("parquet", str(self._types.schema.remove_metadata()))
        return plan | {"booleans with nulls": sorted(self._types.objects)}

    def reader(self) -> ParquetReader:
        """Return the reader for the agents."""
        return self._reader_of(self._types, self._carried())

    def _reader_of(self, types: OneType, values: list[PathValues]) -> ParquetReader:
        return ParquetReader(list(self._files), values, types, as_arrow=self._as_arrow)


def _met(
    files: Sequence[InputFile], of_all: SchemaOfAll, requests: int
) -> Iterator[pq.FileMetaData]:
    """Yield the footers of files, one at a time, once they have been compared with the others."""
    listed = current_listing().reading("the footers of files", files)
    with closing(of_each_file(footer, files, requests)) as footers:
        for file, metadata in zip(listed, footers, strict=True):
            columns = of_all.take(file, _with_uuids(metadata))
            of_all.with_nulls |= nulls_of(metadata, columns, known=of_all.with_nulls)
            yield metadata


class ParquetReader(TypedFilesReader, RowGroupReader):
    """Reads slices of row groups in an agent."""

    def name(self, file: int) -> str:
        """Return the path of a file."""
        return self._files[file].path

    def decode(self, file: int, group: int) -> pa.Table:
        """Return a row group with the types of all; a file that has changed is an error."""
        found, schema = self._files[file], self._types.schema
        where = f"{found.path}, row group {group}"
        try:
            far = is_url(found.path)  # the columns of a row group in a few requests
            with (
                opened_unchanged(found) as opened,
                pq.ParquetFile(opened, pre_buffer=far) as parquet,
            ):
                table = parquet.read_row_group(group, columns=schema.names)
        except (pa.ArrowException, OSError) as error:
            msg = f"{where}: {error}"
            raise LoadError(msg) from error
        return cast(table.select(schema.names), self._types, where, LoadError)
