"""From what the caller gives to a source: frames, collections, paths of tables, paths of files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from daskprs.errors import InputError, class_name, how_to_convert
from daskprs.inputs.files.discover import discover, visible
from daskprs.inputs.files.file_list import FileList
from daskprs.inputs.files.source import FilesSource
from daskprs.inputs.files.suffixes import TableKind, kind_of_all
from daskprs.inputs.mltable.place import mltable_at
from daskprs.inputs.source.columns import check_columns, check_different
from daskprs.inputs.source.read_options import check_options
from daskprs.inputs.source.sizes import bytes_per_mini_batch, files_per_mini_batch
from daskprs.inputs.tables import open_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs.inputs.source.input_file import InputFile
    from daskprs.inputs.source.read_options import ReadOptions
    from daskprs.inputs.source.source import Source, TableSource


def open_source(data: Any, reading: ReadOptions) -> Source:
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
    for kind in type(data).__mro__:
        match kind.__module__.partition(".")[0], kind.__name__:
            case "pandas", "DataFrame":
                return _open_frame(data, reading)
            case "pyarrow", "Table" | "RecordBatch":
                return _open_arrow(data, reading)
            case (("dask" | "dask_expr"), _):
                from daskprs.inputs.frames.dask_collections import open_collection

                return open_collection(data, reading)
    msg = (
        f"data: a {class_name(type(data))} is none of what can be cut: a pandas DataFrame, a "
        "pyarrow Table, a dask DataFrame or Bag, a path, a glob, or a list of paths."
        f"{how_to_convert(data)}"
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


def _open_frame(frame: Any, reading: ReadOptions) -> Source:
    from daskprs.inputs.frames.caller_frame import ObjectFrameSource, source_of_frame
    from daskprs.inputs.source.given_types import with_given_types

    check_options(reading, "frame")
    if reading.columns is not None:
        check_columns(reading.columns, list(frame.columns), "columns")
        frame = frame[list(reading.columns)]
    frame = with_given_types(frame, reading.dtypes)
    size = bytes_per_mini_batch(reading.mini_batch_size)
    source = source_of_frame(frame, size) or ObjectFrameSource(frame, size)
    source.index = frame.index if reading.keep_labels else None
    return _keyed(source, list(frame.columns), reading)


def _open_arrow(table: Any, reading: ReadOptions) -> Source:
    import pyarrow as pa

    from daskprs.inputs.frames.caller_frame import source_of_table

    check_options(reading, "frame")
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if reading.columns is not None:
        check_columns(reading.columns, table.column_names, "columns")
        table = table.select(list(reading.columns))
    size = bytes_per_mini_batch(reading.mini_batch_size)
    source = source_of_table(table, size, reading.dtypes)
    return _keyed(source, list(source.meta().columns), reading)


def _keyed(source: TableSource, columns: Sequence[str], reading: ReadOptions) -> Source:
    """Put the partition keys on top of a table."""
    if not reading.partition_keys:
        return source
    check_columns(reading.partition_keys, columns, "partition_keys")
    check_different(reading.partition_keys, columns)
    from daskprs.inputs.keys.partition_keys import by_keys

    return by_keys(source, reading.partition_keys)


# ---- paths ----


def _open_paths(data: Any, reading: ReadOptions) -> Source:
    mltable = None if reading.input_type == "files" else mltable_at(data)
    if mltable is not None:
        # Only an MLTable needs the YAML reader.
        from daskprs.inputs.mltable.opening import open_mltable

        table = open_mltable(mltable, reading)
        return table if isinstance(table, FilesSource) else _keyed(table, table.columns, reading)
    inputs = discover(data)
    if not any(inputs):
        msg = f"{data!r}: it holds no files."
        raise InputError(msg)
    kind = _kind(inputs, reading)
    check_options(reading, "files" if kind is None else kind.value)
    if kind is None:
        count = files_per_mini_batch(None if reading.partition_keys else reading.mini_batch_size)
        return FilesSource(inputs, count, reading.partition_format, reading.partition_keys)
    files = FileList(_visible(inputs))
    if not files:
        msg = f"{data!r}: no file in it is a table (hidden files are skipped)."
        raise InputError(msg)
    source = open_table(kind, files, reading)
    return _keyed(source, source.columns, reading)


def _kind(inputs: list[FileList], reading: ReadOptions) -> TableKind | None:
    """Return the kind of table, or None for file input."""
    if reading.input_type == "files" or next(_visible(inputs), None) is None:
        return None
    paths = (file.path for file in _visible(inputs))
    if reading.input_type == "table" and reading.delimiter is not None:
        known = kind_of_all(paths, strict=False)
        return known or TableKind.DELIMITED
    return kind_of_all(paths, strict=reading.input_type == "table")


def _visible(inputs: list[FileList]) -> Iterator[InputFile]:
    return (file for one in inputs for file in visible(one))
