"""Columns that come from paths: partition values, appended last, and the path itself, first.

The option `columns` may name partition values, too: they stand where they are named.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from daskprs._arrow.arrow_pandas import EXACT, OneType, ToPandas
from daskprs._inputs.files.partition_format import PartitionFormat, Values, hive_values
from daskprs._inputs.source.included import PATH_ASIDE
from daskprs._inputs.source.input_file import files_fingerprint
from daskprs._inputs.source.source import TableSource
from daskprs.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from daskprs._core.mini_batch import MiniBatch
    from daskprs._inputs.source.input_file import InputFile
    from daskprs._inputs.source.read_options import ReadOptions

PATH = "Path"
"""The name of the column of paths."""
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
_INT = re.compile("0|-?[1-9][0-9]{0,18}")


class PathColumns:
    """The values that the paths of an input carry, with one type for each name over all files.

    Without a `partition_format`, these are the values of folders called ``key=value``.
    """

    def __init__(self, files: Sequence[InputFile], reading: ReadOptions) -> None:
        self._path_first = reading.include_path_column
        given = [
            (*values, *_path_aside(file, reading))
            for file, values in zip(files, _values(files, reading), strict=True)
        ]
        self.names = [name for name, _ in given[0]] if given else []
        for file, values in zip(files, given, strict=True):
            if [name for name, _ in values] != self.names:
                msg = f"{file.path} and {files[0].path} lie in different key=value folders."
                raise InputError(msg)
            if self._path_first or values:
                _refuse_other_bytes(file)
        wanted = reading.columns or ()
        named = [name for name in wanted if name in self.names]
        self.of_files = tuple(name for name in wanted if name not in named) or None
        """The columns to read from the files; None: all of them, even if only to count rows."""
        rest = (name for name in self.names if name not in named)
        self._order = (*wanted, *rest) if named else ()
        self._types = {
            name: _type_of(
                [values[place][1] for values in given], typed=reading.path_values == "typed"
            )
            for place, name in enumerate(self.names)
        }
        self._values = {
            file.path: {name: _as(value, self._types[name]) for name, value in values}
            for file, values in zip(files, given, strict=True)
        }

    def types(self) -> dict[str, str]:
        """Return the types of the columns of `run`, which depend on all paths."""
        return {name: str(self._types[name]) for name in self.names if name != PATH_ASIDE}

    @property
    def text_columns(self) -> dict[str, pa.DataType]:
        """The types of columns that hold text, and the path."""
        names = [PATH] if self._path_first else []
        names += [name for name in self.names if self._types[name] == pa.string()]
        return dict.fromkeys(names, pa.string())

    def values(self, path: str) -> dict[str, Any]:
        """Return the values that a path carries."""
        return self._values[path]

    def of_file(self, path: str) -> PathValues:
        """Return the columns that a reader puts onto the rows of a file."""
        columns = [(name, self._types[name], self._values[path][name]) for name in self.names]
        return PathValues(path if self._path_first else None, columns, self._order)

    def names_with(self, columns: Sequence[str]) -> list[str]:
        """Return the names of a table's columns with these added; no name may be in both."""
        first = [PATH] if self._path_first else []
        taken = [name for name in (*self.names, *first) if name in columns]
        if taken:
            msg = f"the column {taken[0]!r} is in the files and in their paths."
            raise InputError(msg)
        return [*first, *(self._order or (*columns, *self.names))]


class PathValues:
    """The columns of one file, as they are put onto its rows."""

    def __init__(
        self,
        path: str | None,
        columns: list[tuple[str, pa.DataType, Any]],
        order: Sequence[str] = (),
    ) -> None:
        self._path = path
        self._columns = columns
        self._order = list(order)

    def put_on(self, table: pa.Table) -> pa.Table:
        """Return a table with the columns added."""
        for name, type_, value in self._columns:
            table = table.append_column(name, _repeated(value, type_, table.num_rows))
        if self._order:
            table = table.select(self._order)
        if self._path is not None:
            paths = _repeated(self._path, pa.string(), table.num_rows)
            table = table.add_column(0, PATH, paths)
        return table

    def to_pandas(self, types: OneType) -> ToPandas:
        """Return the converter to frames for a table of these types with the columns added."""
        return ToPandas(self.put_on(types.schema.empty_table()), types.objects)

    def put_on_frame(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return a frame with the columns added."""
        for name, type_, value in self._columns:
            values = _repeated(value, type_, len(frame)).to_pandas()
            frame[name] = values.set_axis(frame.index)
        if self._order:
            frame = frame[self._order]
        if self._path is not None:
            frame.insert(0, PATH, _repeated(self._path, pa.string(), len(frame)).to_pandas())
        return frame


class FilesTable(TableSource):
    """A table that lies in files, with columns from their paths."""

    def __init__(self, files: Sequence[InputFile], reading: ReadOptions) -> None:
        self._files = files
        self._paths = PathColumns(files, reading)

    def files(self) -> Sequence[InputFile]:
        """Return the files as they were found."""
        return self._files

    @property
    def path_names(self) -> list[str]:
        """Columns that come from paths."""
        return self._paths.names

    def path_values(self, mini_batch: MiniBatch) -> dict[str, Any]:
        """Return the values that the path of a mini-batch's file carries."""
        return self._paths.values(self._files[mini_batch.piece[0]].path)

    def _carried(self) -> list[PathValues]:
        """Return the columns that a reader puts onto the rows of each file."""
        return [self._paths.of_file(file.path) for file in self._files]

    def _fingerprint(self, kind: str, schema: Any) -> dict[str, Any]:
        """Return the fingerprint of a plan, given the format of the files, and their columns."""
        return {
            "kind": kind,
            "files": files_fingerprint(self._files),
            "schema": schema,
            "types of paths": self._paths.types(),
        }


class TypedFilesTable(FilesTable):
    """A table whose files say the types of their columns."""

    _types: OneType

    @property
    def schema(self) -> pa.Schema:
        """The types of all columns, those from paths too."""
        empty = self._types.schema.empty_table()
        return self._paths.of_file(self._files[0].path).put_on(empty).schema

    def meta(self) -> pd.DataFrame:
        """Return the table without rows."""
        return self._paths.of_file(self._files[0].path).to_pandas(self._types).meta()


class TypedFilesReader:
    """The base of readers of such files in an agent, given what the path of each carries."""

    def __init__(
        self, files: list[InputFile], values: list[PathValues], types: OneType, *, as_arrow: bool
    ) -> None:
        self._files = files
        self._values = values
        self._types = types
        self._as_arrow = as_arrow

    def frame(self, file: int, rows: pa.Table) -> pd.DataFrame | pa.Table:
        """Return rows of a file, with what its path carries."""
        rows = self._values[file].put_on(rows)
        return rows if self._as_arrow else self._to_pandas.frame(rows)

    @cached_property
    def _to_pandas(self) -> ToPandas:
        """Made by the agent: the driver, which makes the reader, does without pandas."""
        return self._values[0].to_pandas(self._types)


def _repeated(value: Any, type_: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, type_), count)


def _values(files: Sequence[InputFile], reading: ReadOptions) -> list[Values]:
    if reading.partition_format is not None:
        partition_format = PartitionFormat(reading.partition_format)
        return [partition_format.values(file) for file in files]
    return [hive_values(file) if reading.path_values == "typed" else () for file in files]


def _path_aside(file: InputFile, reading: ReadOptions) -> Values:
    return ((PATH_ASIDE, file.path),) if reading.path_aside else ()


def _refuse_other_bytes(file: InputFile) -> None:
    try:
        file.path.encode()
    except UnicodeEncodeError:
        msg = f"{file.path!r} is not UTF-8: its values cannot be a column."
        raise InputError(msg) from None


def _type_of(values: list[Any], *, typed: bool) -> pa.DataType:
    """Return the one type of a column.

    Integers are floats where one of them is null, and text where floats would not hold all.
    """
    present = [value for value in values if value != HIVE_NULL]
    if present and all(not isinstance(value, str) for value in present):
        return pa.timestamp("us", tz="UTC")
    if typed and present and all(_is_int(value) for value in present):
        if len(present) == len(values):
            return pa.int64()
        if all(abs(int(value)) <= EXACT for value in present):
            return pa.float64()
    return pa.string()


def _is_int(text: str) -> bool:
    """Say whether text is an integer that is written back the same, unlike ``007``."""
    return _INT.fullmatch(text) is not None and -(2**63) <= int(text) < 2**63


def _as(value: Any, type_: pa.DataType) -> Any:
    if value == HIVE_NULL:
        return None
    if pa.types.is_floating(type_):
        return float(value)
    return int(value) if pa.types.is_integer(type_) else value
