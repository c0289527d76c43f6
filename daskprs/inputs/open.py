"""From what the caller gives to a source: frames, collections, paths of tables, paths of files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from daskprs.errors import InputError, Option, OptionError
from daskprs.inputs.columns import check_columns
from daskprs.inputs.discover import discover, visible
from daskprs.inputs.files import FilesSource
from daskprs.inputs.sizes import bytes_per_mini_batch, files_per_mini_batch
from daskprs.inputs.suffixes import Kind, kind_of_all

if TYPE_CHECKING:
    from daskprs.inputs.input_file import InputFile
    from daskprs.inputs.reading import Reading
    from daskprs.inputs.source import Source, TableSource


def open_source(data: Any, reading: Reading) -> Source:
    """Return the source of an input, after every check that costs little.

    Raises
    ------
    InputError
        When the input is not there, not readable, of no known kind, or its files disagree.
    OptionError
        When a reading option does not suit it.

    """
    if isinstance(data, (str, os.PathLike)) or _is_list_of_paths(data):
        return _open_paths(data, reading)
    match type(data).__module__.partition(".")[0], type(data).__name__:
        case "pandas", "DataFrame":
            return _open_frame(data, reading)
        case "pyarrow", "Table" | "RecordBatch":
            return _open_arrow(data, reading)
        case (("dask" | "dask_expr"), _):
            from daskprs.inputs.dask_collections import open_collection

            return open_collection(data, reading)
    msg = (
        f"data: a {type(data).__name__} is none of what can be cut: a pandas DataFrame, a pyarrow "
        "Table, a dask DataFrame or Bag, a path, a glob, or a list of paths."
    )
    raise InputError(msg)


def _is_list_of_paths(data: Any) -> bool:
    if not isinstance(data, Sequence) or isinstance(data, (bytes, bytearray)):
        return False
    if not data:
        msg = "data: an empty list names no input. A job over nothing takes an empty DataFrame."
        raise InputError(msg)
    return all(isinstance(one, (str, os.PathLike)) for one in data)


# ---- frames ----


def _open_frame(frame: Any, reading: Reading) -> Source:
    from daskprs.inputs.frames import FrameSource, arrow_of
    from daskprs.inputs.object_frames import ObjectFrameSource

    _refuse_text_options(reading)
    frame = _selected(frame, reading)
    size = bytes_per_mini_batch(reading.mini_batch_size)
    table = arrow_of(frame)
    if table is None:
        source: TableSource = ObjectFrameSource(frame, size)
    else:
        source = FrameSource(table, size, frame.iloc[:0].reset_index(drop=True))
    return _keyed(source, list(map(str, frame.columns)), reading)


def _open_arrow(table: Any, reading: Reading) -> Source:
    import pyarrow as pa

    from daskprs.inputs.frames import FrameSource

    _refuse_text_options(reading)
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if reading.columns is not None:
        check_columns(reading.columns, table.column_names, "columns")
        table = table.select(list(reading.columns))
    size = bytes_per_mini_batch(reading.mini_batch_size)
    source = FrameSource(table, size, table.slice(0, 0).to_pandas())
    return _keyed(source, table.column_names, reading)


def _selected(frame: Any, reading: Reading) -> Any:
    if reading.columns is None:
        return frame
    check_columns(reading.columns, list(frame.columns), "columns")
    return frame[list(reading.columns)]


def _refuse_text_options(reading: Reading) -> None:
    """Refuse options that a frame in memory gives no meaning to."""
    for name in ("partition_format", "delimiter", "header", "dtypes", "include_path_column"):
        if getattr(reading, name):
            raise OptionError(Option(name), ": only for input that lies in files, not for a frame.")
    if reading.input_type == "files":
        raise OptionError(Option("input_type", "files"), ": a frame is a table.")


def _keyed(source: TableSource, columns: Sequence[str], reading: Reading) -> Source:
    """Put the partition keys on top of a table."""
    if not reading.partition_keys:
        return source
    check_columns(reading.partition_keys, columns, "partition_keys")
    from daskprs.inputs.partition_keys import by_keys

    return by_keys(source, reading.partition_keys)


# ---- paths ----


def _open_paths(data: Any, reading: Reading) -> Source:
    inputs = discover(data)
    if not any(inputs):
        msg = f"{data!r}: there is no file in it."
        raise InputError(msg)
    kind = _kind(inputs, reading)
    if kind is None:
        count = files_per_mini_batch(None if reading.partition_keys else reading.mini_batch_size)
        return FilesSource(inputs, count, reading.partition_format, reading.partition_keys)
    files = [file for one in inputs for file in visible(one)]
    if not files:
        msg = f"{data!r}: no file in it is a table (hidden files are skipped)."
        raise InputError(msg)
    source, columns = _open_table(kind, files, reading)
    return _keyed(source, columns, reading)


def _kind(inputs: list[list[InputFile]], reading: Reading) -> Kind | None:
    """Return the kind of table, or None for file input."""
    if reading.input_type == "files":
        return None
    paths = [file.path for one in inputs for file in visible(one)]
    if reading.input_type == "table" and reading.delimiter is not None and paths:
        known = kind_of_all(paths, strict=False)
        return known or Kind.DELIMITED
    return kind_of_all(paths, strict=reading.input_type == "table")


def _open_table(
    kind: Kind, files: list[InputFile], reading: Reading
) -> tuple[TableSource, Sequence[str]]:
    match kind:
        case Kind.PARQUET:
            from daskprs.inputs.parquet import ParquetSource

            parquet = ParquetSource(files, reading)
            return parquet, parquet.columns
        case Kind.DELIMITED:
            from daskprs.inputs.delimited import DelimitedSource

            delimited = DelimitedSource(files, reading)
            return delimited, delimited.columns
        case Kind.JSON_LINES:
            from daskprs.inputs.json_lines import JsonLinesSource

            lines = JsonLinesSource(files, reading)
            return lines, lines.columns
