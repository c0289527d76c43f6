"""The formats of part files: Parquet, Arrow and JSON lines, each written and read in pieces.

Parquet is compressed by zstd at its lowest level: about as fast as snappy, and smaller. Arrow files
are not compressed, so that they can be mapped. JSON has few types, so the others become text: dates
and times in ISO 8601, decimals with all their digits, bytes as base64. NaN and infinities are null.
"""

from __future__ import annotations

import base64
import io
import json
import math
from bisect import bisect_right
from collections import Counter
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from itertools import accumulate, islice
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from daskprs._arrow.exact_casts import OF_VIEWS, cast_exactly, is_text, normal
from daskprs._arrow.sizes import size_bytes
from daskprs.errors import Option, ReturnTypeError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from pathlib import Path

is_ = pa.types
COMPRESSION = "zstd"
UNFIT = (ValueError, OverflowError, KeyError, pa.ArrowNotImplementedError)
"""Errors of writers for values that they cannot write; most of Arrow's are subclasses of these."""
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""The name of a null in a folder's name."""
LONGEST_NAME_BYTES = 255
"""The longest name of a folder in the file systems of Linux."""
ESCAPED_BYTES = 3
"""Most bytes that a byte of a value takes in a folder's name."""
SHOWN = 40
"""Characters of a long value that an error shows."""
ROWS_AT_ONCE = 10_000
"""Rows that become Python values at once."""


def writer_of(
    format_: str, file: IO[bytes], schema: pa.Schema
) -> _ParquetRows | _ArrowFileRows | _JsonRows:
    """Return what writes tables of one schema into a part file, which stays open in the end."""
    if format_ == "parquet":
        return _ParquetRows(file, schema)
    return _ArrowFileRows(file, schema) if format_ == "arrow" else _JsonRows(file)


def schema_in_file(format_: str, schema: pa.Schema) -> pa.Schema:
    """Return the schema that a file gets: an Arrow file cannot have a dictionary for each batch."""
    if format_ != "arrow":
        return schema
    return pa.schema([one.with_type(_plain(one.type)) for one in schema], schema.metadata)


def schema_read_back(format_: str, schema: pa.Schema, in_folders: Collection[str]) -> pa.Schema:
    """Return the schema of rows that are read: folders and Arrow files order no categories.

    `in_folders` are the columns in the names of folders.
    """
    are_plain = schema.names if format_ == "arrow" else in_folders
    types = [_unordered(one.type) if one.name in are_plain else one.type for one in schema]
    fields = [one.with_type(type_) for one, type_ in zip(schema, types, strict=True)]
    return pa.schema(fields, schema.metadata)


def groups_in(format_: str, path: Path) -> int:
    """Return the number of row groups of a Parquet file, or of batches of an Arrow file."""
    with _opened(format_, path) as (sizes, _):
        return len(sizes)


def read_group(format_: str, path: Path, number: int, columns: list[str]) -> pa.Table:
    """Return columns of one row group of a Parquet file, or of one batch of an Arrow file."""
    with _opened(format_, path) as (_, read):
        return read(number, columns)


class RowsInOrder:
    """Reads rows of a part file from its start to its end, without reading any of them twice.

    The file is open only while it reads from it: a part may take rows from very many files.
    """

    def __init__(self, format_: str, path: Path) -> None:
        self.held_bytes = 0
        """Bytes of the row group that it keeps."""
        self._format = format_
        self._path = path
        self._ends: list[int] | None = None
        """The row behind each row group; None before the first is read."""
        self._group: pa.Table | None = None
        self._first = 0
        """The first row of the group, or the line that follows."""
        self._offset = 0
        """The first byte of that line."""

    def drop(self) -> None:
        """Forget the row group; it is read again if more of it is wanted."""
        self._group, self.held_bytes = None, 0

    def tables(self, start: int, count: int, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield rows of a Parquet or Arrow file in a schema, which may have fewer columns.

        `start` is behind the rows yielded before.
        """
        stop = start + count
        while start < stop:
            # Decoded once: when each mini-batch opened the file anew, a resume took time that grew
            # with the square of their number.
            if self._group is None or start >= self._first + self._group.num_rows:
                self._group = self._group_with(start)
                self.held_bytes = size_bytes(self._group)
            rows = self._group.slice(start - self._first, stop - start)
            start += rows.num_rows
            columns = [cast_exactly(rows.column(one.name), one.type) for one in schema]
            yield pa.table(columns, schema=schema)

    def lines(self, start: int, count: int) -> Iterator[bytes]:
        """Yield lines of a file of JSON lines; `start` is behind the lines yielded before."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            yield from islice(file, start - self._first, start - self._first + count)
            self._first, self._offset = start + count, file.tell()

    def _group_with(self, row: int) -> pa.Table:
        with _opened(self._format, self._path) as (sizes, read):
            if self._ends is None:
                self._ends = list(accumulate(sizes))
            number = bisect_right(self._ends, row)
            self._first = self._ends[number] - sizes[number]
            return read(number, None)


@contextmanager
def _opened(format_: str, path: Path) -> Iterator[tuple[list[int], Any]]:
    """Yield the rows of each row group of a file, and what reads columns of one."""
    if format_ == "parquet":
        import pyarrow.parquet as pq

        with pq.ParquetFile(path) as file:
            sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
            yield sizes, file.read_row_group
        return
    with pa.memory_map(str(path)) as mapped:
        reader = pa.ipc.open_file(mapped)

        def read(number: int, columns: list[str] | None) -> pa.Table:
            table = pa.Table.from_batches([reader.get_batch(number)])
            return table if columns is None else table.select(columns)

        yield [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)], read


# ---- what fits ----


def check_writable(schema: pa.Schema, format_: str, partition_by: Collection[str]) -> None:
    """Raise `ReturnTypeError` for a column that the format, or a folder's name, cannot hold."""
    # For each column anew, this took 25 s for 10,000 columns.
    names = Counter(schema.names)  # which Arrow makes anew each time
    for field in schema:
        if names[field.name] > 1:
            msg = f"run() returned two columns {field.name!r}. A data set needs different names."
            raise ReturnTypeError(msg)
        why = _why_not(format_, normal(field.type))
        if why:
            msg = (
                f"run() returned a column {field.name!r} of the type {field.type}, which "
                f"{Option('output_format', format_)} cannot hold: {why}. Return another type."
            )
            raise ReturnTypeError(msg)
    for name in partition_by:
        if name not in names:
            msg = (
                f"run() returned no column {name!r}, by which {Option('output_partition_by')} "
                f"makes folders. It returned {', '.join(map(repr, schema.names))}."
            )
            raise ReturnTypeError(msg)
        if not _makes_folders(_plain(schema.field(name).type)):
            msg = (
                f"run() returned a column {name!r} of the type {schema.field(name).type}, which "
                f"makes no folders by {Option('output_partition_by')}. Return whole numbers, text, "
                "booleans or dates."
            )
            raise ReturnTypeError(msg)
    if partition_by and len(partition_by) == len(schema.names):
        msg = (
            f"run() returned no other columns than those by which {Option('output_partition_by')} "
            "makes folders: nothing is left for the files. Return a column more."
        )
        raise ReturnTypeError(msg)


def check_folders(table: pa.Table, partition_by: Collection[str]) -> None:
    """Raise `ReturnTypeError` for a value that no folder's name can hold.

    Only a text can be one: the names of numbers and dates are short.
    """
    columns = without_views(table.select(partition_by)).columns if partition_by else []
    for name, column in zip(partition_by, columns, strict=True):
        plain = _plain(column.type)
        if not (is_.is_string(plain) or is_.is_large_string(plain)):
            continue
        texts = column.cast(plain).unique()
        longest = (LONGEST_NAME_BYTES - len(f"{name}=".encode())) // ESCAPED_BYTES
        is_suspect = pc.or_(
            pc.or_(pc.equal(texts, NULL_FOLDER), pc.match_substring(texts, "\0")),
            pc.greater(pc.binary_length(texts), longest),
        )
        for value in texts.filter(is_suspect).to_pylist():
            _check_folder(name, value)


def _check_folder(name: str, value: str) -> None:
    if value == NULL_FOLDER:
        msg = (
            f"run() returned the text {value!r} in the column {name!r}, of which "
            f"{Option('output_partition_by')} makes folders: it is the name of the folder of "
            "nulls, and would be read back as null. Return another text, or null."
        )
        raise ReturnTypeError(msg)
    if "\0" in value:  # Arrow would end the name there, and put other rows into the same folder
        msg = (
            f"run() returned the text {value[:SHOWN]!r} in the column {name!r}, of which "
            f"{Option('output_partition_by')} makes folders, and no name of a folder has the "
            "character \\x00. Return another text, or make folders by another column."
        )
        raise ReturnTypeError(msg)
    length = len(f"{name}={quote(value, safe='')}".encode())
    if length > LONGEST_NAME_BYTES:
        msg = (
            f"run() returned a text of {len(value):,} characters in the column {name!r}, of which "
            f"{Option('output_partition_by')} makes folders: {value[:SHOWN]!r}… would be the name "
            f"of a folder of {length:,} bytes, and file systems allow {LONGEST_NAME_BYTES}. Return "
            "a shorter text, or make folders by another column."
        )
        raise ReturnTypeError(msg)


def hard_to_read(names: Iterable[str]) -> list[str]:
    """Return a sentence for each kind of folder that some reader refuses, by the names of files."""
    folders = dict.fromkeys(part for name in names for part in name.split("/")[:-1])
    told = {}
    for folder in folders:
        column, _, value = folder.partition("=")
        if value == NULL_FOLDER:
            told[value] = (
                f"{folder} has the rows whose {column!r} is null, a folder that "
                "pandas.read_parquet cannot read beside others. Let pandas read it by "
                "partitioning=pyarrow.dataset.partitioning(flavor='hive')"
            )
        elif not value:
            told[value] = (
                f"{folder} has the rows whose {column!r} is an empty text, a folder that Spark "
                "cannot read. Return null or another text if Spark is to read it"
            )
    return [f"the folder {sentence}." for sentence in told.values()]


@cache
def _why_not(format_: str, type_: pa.DataType) -> str:
    """Return why a format cannot hold a type: a file with a null of that type is tried."""
    if is_.is_dictionary(type_) and isinstance(type_.value_type, pa.BaseExtensionType):
        return f"Arrow takes no {type_.value_type} out of a dictionary"
    schema = schema_in_file(format_, pa.schema([("x", type_)]))
    try:
        table = pa.table([pa.nulls(1, schema.field(0).type)], schema=schema)
        writer = writer_of(format_, io.BytesIO(), schema)
        writer.write(table)
        writer.close()
    except (pa.ArrowException, OSError, TypeError, ValueError) as error:
        return str(error).splitlines()[0].rstrip(".")
    return ""


def unwritable_column(format_: str, table: pa.Table) -> str | None:
    """Return the first column whose values a format cannot hold; each column is tried alone."""
    for name in table.schema.names:
        column = table.select([name])
        try:
            writer_of(format_, io.BytesIO(), column.schema).write(column)
        except UNFIT:
            return str(name)
    return None


def _makes_folders(type_: pa.DataType) -> bool:
    kinds = (is_.is_integer, is_text, is_.is_boolean, is_.is_date, is_.is_null)
    return any(kind(type_) for kind in kinds)


def _unordered(type_: pa.DataType) -> pa.DataType:
    return pa.dictionary(type_.index_type, type_.value_type) if is_.is_dictionary(type_) else type_


def _plain(type_: pa.DataType, other: Callable[[pa.DataType], Any] = lambda one: one) -> Any:
    """Return a type with the values of dictionaries in place of the dictionaries.

    `other` returns what takes the place of a flat type.
    """
    if is_.is_dictionary(type_):
        return _plain(type_.value_type, other)
    if is_.is_struct(type_):
        return pa.struct([one.with_type(_plain(one.type, other)) for one in type_])
    if is_.is_map(type_):
        inner = (_plain(one, other) for one in (type_.key_type, type_.item_type))
        return pa.map_(*inner, type_.keys_sorted)
    for is_list, list_of in _LISTS:
        if is_list(type_):
            return list_of(type_.value_field.with_type(_plain(type_.value_type, other)))
    if is_.is_fixed_size_list(type_):
        values = type_.value_field.with_type(_plain(type_.value_type, other))
        return pa.list_(values, type_.list_size)
    return other(type_)


def _with_types(table: pa.Table, other: Callable[[pa.DataType], pa.DataType]) -> pa.Table:
    """Return rows with other flat types, within lists and structs, too; the rest stays as it is."""
    for number, field in enumerate(table.schema):
        old, new = _plain(field.type), _plain(field.type, other)
        if old != new:
            column = table.column(number).cast(new)
            table = table.set_column(number, field.with_type(new), column)
    return table


def without_views(table: pa.Table) -> pa.Table:
    """Return rows with plain text and bytes in place of views, from which Arrow takes no rows."""
    return _with_types(table, lambda one: OF_VIEWS.get(one, one))


_LISTS = ((is_.is_list, pa.list_), (is_.is_large_list, pa.large_list))


# ---- writers ----


class _ParquetRows:
    """Writes a row group for each table."""

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        self._writer = pq.ParquetWriter(pa.PythonFile(file, "w"), schema, compression=COMPRESSION)

    def write(self, table: pa.Table) -> None:
        _with_types(table, _milliseconds)  # raises where Arrow before 25 writes another moment
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))

    def close(self) -> None:
        self._writer.close()


class _ArrowFileRows:
    """Writes a record batch for each table."""

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        self._writer = pa.ipc.new_file(pa.PythonFile(file, "w"), schema)

    def write(self, table: pa.Table) -> None:
        for batch in table.combine_chunks().to_batches():
            self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


class _JsonRows:
    """Writes a JSON object for each row."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, table: pa.Table) -> None:
        for start in range(0, table.num_rows, ROWS_AT_ONCE):
            rows = _with_types(table.slice(start, ROWS_AT_ONCE), _told).to_pylist()
            self._file.write("".join(f"{_json(row)}\n" for row in rows).encode())

    def close(self) -> None:
        """Do nothing: a line needs no end but its own."""


def _milliseconds(type_: pa.DataType) -> pa.DataType:
    """Return moments in milliseconds for those in seconds, which Parquet does not have."""
    is_in_seconds = is_.is_timestamp(type_) and type_.unit == "s"
    return pa.timestamp("ms", type_.tz) if is_in_seconds else type_


def _told(type_: pa.DataType) -> pa.DataType:
    """Return text for times of nanoseconds, which times of Python do not hold."""
    return pa.string() if type_ == pa.time64("ns") else type_


def with_text_of_periods(table: pa.Table) -> pa.Table:
    """Return rows for JSON with the text of periods of pandas.

    Arrow stores their numbers. The processes that write JSON do not import pandas, which knows what
    the numbers mean.
    """
    for number, field in enumerate(table.schema):
        if getattr(field.type, "extension_name", "") == "pandas.period":
            periods = table.column(number).to_pandas()
            texts = pa.array(map(str, periods), pa.string(), mask=periods.isna().to_numpy())
            table = table.set_column(number, field.name, texts)
    return table


def _json(row: dict[str, Any]) -> str:
    try:
        return _dumps(row)
    except ValueError:  # a NaN or an infinity
        return _dumps(_finite(row))


def _finite(value: Any) -> Any:
    """Return a value with null for each number that JSON does not have."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {name: _finite(one) for name, one in value.items()}
        case list() | tuple():
            return [_finite(one) for one in value]
        case _:
            return value


def _text(value: Any) -> str:
    """Return the text of a value for which JSON has no type."""
    match value:
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            import pandas as pd

            return str(pd.Timedelta(value).isoformat())
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case Decimal():
            return format(value, "f")
        case _:
            return str(value)


_dumps = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_text
).encode
