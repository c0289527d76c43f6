"""Files of formats that other packages read, by the suffix of the files."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from daskprs import _plugins
from daskprs._arrow.arrow_pandas import cast
from daskprs._core.mini_batch import MiniBatch, Where
from daskprs._inputs.files.file_versions import opened_unchanged
from daskprs._inputs.files.listing import current_listing
from daskprs._inputs.files.path_columns import TypedFilesReader, TypedFilesTable
from daskprs._inputs.parquet import SchemaOfAll
from daskprs._inputs.source.read_options import BINARY, refuse_options
from daskprs.errors import DaskprsError, InputError, LoadError, Option, OptionError
from daskprs.readers import Piece

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from daskprs._arrow.arrow_pandas import OneType
    from daskprs._inputs.files.path_columns import PathValues
    from daskprs._inputs.source.input_file import InputFile
    from daskprs._inputs.source.read_options import ReadOptions
    from daskprs.readers import FileReader


class InstalledFormat(NamedTuple):
    """The reader of a suffix: its name travels to the agents, and each imports it on first use."""

    suffix: str
    dotted: str

    def __str__(self) -> str:
        """Return the name of the format, for people."""
        return f"the reader of {self.suffix} files, {self.dotted}"

    @property
    def reader(self) -> FileReader:
        """The reader itself."""
        reader: FileReader = _plugins.loaded(self.dotted)
        return reader

    def schema(self, file: InputFile) -> pa.Schema:
        """Return the columns of a file."""
        with self._called("schema", file.path), opened_unchanged(file) as opened:
            schema = self.reader.schema(opened)
        if not isinstance(schema, pa.Schema):
            msg = f"schema() of {self} returned a {type(schema).__name__}, and no pyarrow.Schema."
            raise InputError(msg)
        return schema

    def pieces(self, file: InputFile, size_bytes: int) -> list[Piece]:
        """Return the parts of a file."""
        with self._called("cut", file.path), opened_unchanged(file) as opened:
            pieces: list[Any] = [*self.reader.cut(opened, size_bytes)]
        for one in pieces:
            if not isinstance(one, Piece):
                kind = type(one).__name__
                msg = (
                    f"{file.path}: cut() of {self} yielded a {kind}, and no daskprs.readers.Piece."
                )
                raise InputError(msg)
        return pieces

    def table(self, file: InputFile, where: Any) -> pa.Table:
        """Return the rows of a part."""
        try:
            reader = self.reader
        except (Exception, SystemExit) as error:  # this node lacks the package, say
            told = f"{type(error).__name__}: {error}"
            msg = f"{self} cannot be imported here: {told}. Install its package on each node."
            raise LoadError(msg) from error
        place = f"{file.path}, {where}"
        with self._called("read", place, LoadError), opened_unchanged(file) as opened:
            table = reader.read(opened, where)
        if not isinstance(table, pa.Table):
            msg = f"read() of {self} returned a {type(table).__name__}, and no pyarrow.Table."
            raise LoadError(msg)
        return table

    @contextmanager
    def _called(
        self, what: str, place: str, error_class: type[DaskprsError] = InputError
    ) -> Iterator[None]:
        """Report what a function of the reader raises, whose code is a stranger's."""
        try:
            yield
        except DaskprsError:
            raise
        except (Exception, SystemExit) as error:  # SystemExit would end the caller's program
            msg = f"{place}: {what}() of {self} failed: {type(error).__name__}: {error}"
            raise error_class(msg) from error


def installed_format(suffix: str) -> InstalledFormat | None:
    """Return the format of a suffix that an installed package reads; None without one."""
    name = suffix.removeprefix(".")
    dotted = _plugins.installed_name(_plugins.READERS, name) if name else None
    if dotted is None:
        return None
    reader = _plugins.installed_part(_plugins.READERS, name)
    lacking = [one for one in ("schema", "cut", "read") if not callable(getattr(reader, one, None))]
    if lacking:
        msg = f"{_plugins.READERS}: {dotted} of {suffix} files has no function {lacking[0]}()."
        raise InputError(msg, " Mend that package, or get paths by ", Option("input_type", "files"))
    return InstalledFormat(suffix, dotted)


class InstalledFormatSource(TypedFilesTable):
    """Cuts files as their reader says; a mini-batch is a part of one file."""

    def __init__(
        self, format_: InstalledFormat, files: Sequence[InputFile], reading: ReadOptions
    ) -> None:
        refuse_options(reading, BINARY, f"{format_.suffix} files, which have types of their own")
        cut_by_reader = f"{format_.suffix} files, which their reader cuts"
        refuse_options(reading, ["mini_batch_cost"], cut_by_reader)
        super().__init__(files, reading)
        self._format = format_
        self._size_bytes = _bytes_of(reading, format_)
        self._as_arrow = reading.as_arrow
        of_all = SchemaOfAll(self._paths.of_files, reading)
        nullable: set[str] = set()
        for file in current_listing().reading("the schemas of files", files):
            declared = format_.schema(file)
            nullable |= {field.name for field in declared if field.nullable}
            of_all.take(file, declared)
            of_all.with_nulls |= _nulls_in(declared)
        self._types = of_all.result()
        self._never_null = [name for name in self._types.schema.names if name not in nullable]
        self._pieces: dict[int, list[Piece]] = {}
        """The parts of the files that have been cut: a plan is asked for more than once."""
        self.columns = self._paths.names_with(self._types.schema.names)

    def mini_batches(self) -> Iterator[MiniBatch]:
        """Yield the parts of the files, in order."""
        index = 0
        for place, file in enumerate(self._files):
            if place not in self._pieces:
                self._pieces[place] = self._format.pieces(file, self._size_bytes)
            for piece in self._pieces[place]:
                yield MiniBatch(
                    index=index,
                    piece=(place, piece.where),
                    identity=f"{file.identity}|{piece.where!r}",
                    items=piece.rows,
                    size_bytes=piece.size_bytes,
                    label=f"{file.name}, {piece.where}",
                )
                index += 1

    def count(self) -> int | None:
        """Return how many mini-batches there are, once all files have been cut."""
        whole = len(self._pieces) == len(self._files)
        return sum(map(len, self._pieces.values())) if whole else None

    def usual_rows(self) -> float | None:
        """Return how many rows the first part has."""
        return next((one.items for one in self.mini_batches()), None)

    def fingerprint(self) -> dict[str, Any]:
        """Return the fingerprint of the plan."""
        schema = str(self._types.schema.remove_metadata())
        return self._fingerprint(self._format.suffix, schema) | {"reader": self._format.dotted}

    def reader(self) -> InstalledFormatReader:
        """Return the reader for the agents."""
        return InstalledFormatReader(
            self._format,
            list(self._files),
            self._carried(),
            self._types,
            never_null=self._never_null,
            as_arrow=self._as_arrow,
        )

    def where(self, mini_batch: MiniBatch) -> Where:
        """Return the file."""
        return Where(paths=(self._files[mini_batch.piece[0]].path,))


class InstalledFormatReader(TypedFilesReader):
    """Reads parts of files in an agent."""

    def __init__(
        self,
        format_: InstalledFormat,
        files: list[InputFile],
        values: list[PathValues],
        types: OneType,
        *,
        never_null: list[str],
        as_arrow: bool,
    ) -> None:
        super().__init__(files, values, types, as_arrow=as_arrow)
        self._format = format_
        self._never_null = never_null

    def load(self, mini_batch: MiniBatch) -> pd.DataFrame | pa.Table:
        """Return the rows of a part, with what the path of its file carries."""
        place, where = mini_batch.piece
        file, names = self._files[place], self._types.schema.names
        table = self._format.table(file, where)
        if mini_batch.items not in (None, table.num_rows):  # the counts of the job would be wrong
            rows = f"{table.num_rows} rows, and cut() has announced {mini_batch.items}"
            msg = f"{file.path}, {where}: read() of {self._format} gave {rows}."
            raise LoadError(msg)
        missing = [name for name in names if name not in table.column_names]
        if missing:
            msg = f"{file.path}, {where}: read() of {self._format} gave no column {missing[0]!r}."
            raise LoadError(msg)
        for name in self._never_null:
            if table[name].null_count:
                msg = (
                    f"{file.path}, {where}: read() of {self._format} gave a null in column "
                    f"{name!r}, which schema() has announced with nullable=False."
                )
                raise LoadError(msg)
        table = cast(table.select(names), self._types, f"{file.path}, {where}", LoadError)
        return self.frame(place, table)

    def close(self) -> None:
        """Do nothing: each part opens its file."""


def _bytes_of(reading: ReadOptions, format_: InstalledFormat) -> int:
    """Return the bytes of a part; a reader does not cut by rows."""
    if reading.size.unit == "rows":
        told = f": {format_} cuts its files by bytes. Give a size such as '10 MB'."
        raise OptionError(Option("mini_batch_size", reading.mini_batch_size), told)
    return reading.size.amount


def _nulls_in(schema: pa.Schema) -> set[str]:
    """Return the integers and booleans that may be null."""
    return {
        field.name
        for field in schema
        if field.nullable and (pa.types.is_integer(field.type) or pa.types.is_boolean(field.type))
    }
