"""From what the caller gives to a source: frames, collections, paths of tables, paths of files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from daskprs import _plugins
from daskprs._arrow.arrow_polars import arrow_table
from daskprs._core.stages import name_of
from daskprs._inputs.files.discover import discover, visible
from daskprs._inputs.files.file_list import FileList
from daskprs._inputs.files.marked_folder import mark_at
from daskprs._inputs.files.source import FilesSource
from daskprs._inputs.files.suffixes import (
    TableKind,
    kind_of,
    kind_of_all,
    mixed_kinds,
    suffix_of,
)
from daskprs._inputs.source.batch_format import (
    check_columns_fit,
    check_polars,
    check_polars_holds,
    not_in_arrow,
)
from daskprs._inputs.source.columns import check_columns, check_different
from daskprs._inputs.source.read_options import check_options, refuse_options
from daskprs._inputs.source.sizes import size_in_costs
from daskprs._inputs.source.source import OpenedSource
from daskprs._inputs.tables import open_table
from daskprs.errors import InputError, class_name, how_to_convert

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs._inputs.costs import CutTable
    from daskprs._inputs.frames.caller_frame import FrameSource, ObjectFrameSource
    from daskprs._inputs.installed_formats import InstalledFormat
    from daskprs._inputs.parquet import ParquetSource
    from daskprs._inputs.source.input_file import InputFile
    from daskprs._inputs.source.read_options import ReadOptions
    from daskprs._inputs.source.source import Source, TableSource


def open_source(data: Any, reading: ReadOptions) -> Source:
    """Return the source of an input, after every check that costs little.

    Raise `InputError` when the input is not there, not readable, of no known kind, or its files
    disagree, and `OptionError` when a reading option does not suit it.
    """
    if isinstance(data, OpenedSource):
        return data.source
    if reading.batch_format == "polars":
        check_polars()
    if isinstance(data, (str, os.PathLike)) or _is_list_of_paths(data):
        return _open_paths(data, reading)
    if isinstance(data, (list, tuple)) and all(map(_is_delayed, data)):
        return _open_dask(data, reading)
    for kind in type(data).__mro__:
        package = kind.__module__.partition(".")[0]
        opener = _OPENERS.get((package, kind.__name__)) or _OPENERS.get((package, ANY))
        if opener is not None:
            return opener(data, reading)
    if hasattr(data, "__arrow_c_stream__"):
        return _open_stream(data, reading)
    msg = (
        f"data: a {class_name(type(data))} cannot be cut into mini-batches. Give a frame or Series "
        "of pandas or polars, a pyarrow Table, any other Arrow stream, a dask DataFrame or Bag, a "
        "path, a glob, or a list of paths. A list of values can be the column of a frame."
        f"{how_to_convert(data)}"
    )
    raise InputError(msg)


def labels_of(data: Any, *, is_moved: bool) -> int | None:
    """Return the number of rows of a pandas input if its labels number the output's rows from 0.

    Return −1 for other labels, or if the rows are in another order (`is_moved`), and for a frame of
    Dask, whose labels are known with its partitions. Return None for other inputs.
    """
    if _is_dask_frame(data):
        return -1
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(data, (pandas.DataFrame, pandas.Series)):
        return None
    are_numbers = data.index.equals(pandas.RangeIndex(len(data)))
    return len(data) if are_numbers and not is_moved else -1


def has_labels(data: Any) -> bool:
    """Say whether a frame has an index that `run` does not see."""
    return labels_of(data, is_moved=False) == -1


def _is_dask_frame(data: Any) -> bool:
    # Of the class: the divisions of a frame may cost a pass over its data.
    return class_name(type(data)).startswith("dask") and hasattr(type(data), "divisions")


def _is_list_of_paths(data: Any) -> bool:
    if not isinstance(data, Sequence) or isinstance(data, (bytes, bytearray)):
        return False
    if not data:
        msg = "data: an empty list names no input. A job over nothing takes an empty DataFrame."
        raise InputError(msg)
    return all(isinstance(one, (str, os.PathLike)) for one in data)


def _is_delayed(value: Any) -> bool:
    from daskprs._inputs.collections.collection_graph import is_delayed

    return is_delayed(value)


# ---- frames ----


def _open_frame(frame: Any, reading: ReadOptions) -> Source:
    from daskprs._inputs.frames.caller_frame import (
        ObjectFrameSource,
        arrow_source_of_frame,
        source_of_frame,
    )
    from daskprs._inputs.source.given_types import with_given_types

    check_options(reading, "frame")
    if reading.columns is not None:
        check_columns(reading.columns, list(frame.columns), "columns")
        frame = frame[list(reading.columns)]
    frame = with_given_types(frame, reading.dtypes)
    size = reading.size
    source: FrameSource | ObjectFrameSource
    if reading.as_arrow:
        check_columns_fit(reading.batch_format, [str(label) for label in frame.columns])
        source = arrow_source_of_frame(frame, size)
        check_polars_holds(source.schema, reading.batch_format)
    else:
        check_columns_fit(reading.batch_format, list(frame.columns))
        source = source_of_frame(frame, size) or ObjectFrameSource(frame, size)
    source.index = frame.index if reading.keep_labels else None
    return _cut(source, list(frame.columns), reading)


def _open_arrow(table: Any, reading: ReadOptions) -> Source:
    import pyarrow as pa

    from daskprs._inputs.frames.caller_frame import source_of_table

    check_options(reading, "frame")
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if reading.columns is not None:
        check_columns(reading.columns, table.column_names, "columns")
        table = table.select(list(reading.columns))
    check_columns_fit(reading.batch_format, table.column_names)
    source = source_of_table(table, reading)
    check_polars_holds(source.schema, reading.batch_format)
    names = source.schema.names if reading.as_arrow else list(source.meta().columns)
    return _cut(source, names, reading)


def _open_stream(data: Any, reading: ReadOptions, *, is_lazy: bool = False) -> Source:
    from daskprs._inputs.frames.arrow_stream import open_lazy, open_stream

    check_options(reading, "frame")
    source = (open_lazy if is_lazy else open_stream)(data, reading)
    check_columns_fit(reading.batch_format, source.schema.names)
    check_polars_holds(source.schema, reading.batch_format)
    return _cut(source, source.schema.names, reading)


def _open_series(series: Any, reading: ReadOptions) -> Source:
    return open_source(series.to_frame(), reading)


def _open_polars(frame: Any, reading: ReadOptions) -> Source:
    if reading.columns is not None:  # before Arrow has to hold the others
        check_columns(reading.columns, frame.columns, "columns")
        frame = frame.select(list(reading.columns))
    try:
        table = arrow_table(frame)
    except TypeError as error:
        raise not_in_arrow(error) from error
    return _open_arrow(table, reading)


def _open_dask(data: Any, reading: ReadOptions) -> Source:
    from daskprs._inputs.collections.opening import open_collection

    refuse_options(
        reading, ["mini_batch_cost"], "a Dask collection, whose partitions are computed by and by"
    )
    source = open_collection(data, reading)
    if not reading.partition_keys or source.unit == "file":
        return source
    table = cast("TableSource", source)
    return _keyed(table, list(table.meta().columns), reading)


ANY = "*"
_OPENERS: dict[tuple[str, str], Callable[[Any, ReadOptions], Source]] = {
    ("pandas", "DataFrame"): _open_frame,
    ("pandas", "Series"): _open_series,
    ("pyarrow", "Table"): _open_arrow,
    ("pyarrow", "RecordBatch"): _open_arrow,
    ("polars", "DataFrame"): _open_polars,
    ("polars", "Series"): _open_series,
    ("polars", "LazyFrame"): partial(_open_stream, is_lazy=True),
    ("dask", ANY): _open_dask,
    ("distributed", "Future"): _open_dask,
}
"""Openers by package and class, so that no package is imported to compare classes."""


def _cut(source: CutTable, columns: Sequence[str], reading: ReadOptions) -> Source:
    """Put partition keys, or costs, on top of a table."""
    cost = reading.mini_batch_cost
    if cost is None:
        return _keyed(source, columns, reading)
    from daskprs._inputs.costs import CostSource

    size = size_in_costs(reading.mini_batch_size)
    if isinstance(cost, str):
        return CostSource(source, columns, cost, size, is_function=cost not in columns)
    return CostSource(source, columns, name_of(cost), size, is_function=True)


def _keyed(source: TableSource, columns: Sequence[str], reading: ReadOptions) -> Source:
    """Put the partition keys on top of a table."""
    if not reading.partition_keys:
        return source
    check_columns(reading.partition_keys, columns, "partition_keys")
    check_different(reading.partition_keys, columns)
    from daskprs._inputs.keys.partition_keys import by_keys

    return by_keys(source, reading.partition_keys)


# ---- paths ----


def _open_paths(data: Any, reading: ReadOptions) -> Source:
    described = None if reading.input_type == "files" else _open_described(data, reading)
    if described is not None:
        return described
    inputs = discover(data, reading.store_requests)
    if not any(inputs):
        msg = f"{data!r}: it holds no files."
        raise InputError(msg)
    installed = None if reading.input_type == "files" else _installed_format(inputs)
    if installed is not None:
        return _open_installed(installed, FileList(_visible(inputs)), reading)
    kind = _kind(inputs, reading)
    check_options(reading, "files" if kind is None else kind.value)
    if kind is None:
        return FilesSource(inputs, reading)
    files = FileList(_visible(inputs))
    if not files:
        msg = f"{data!r}: no file in it is a table (hidden files are skipped)."
        raise InputError(msg)
    source = open_table(kind, files, reading)
    check_columns_fit(reading.batch_format, source.columns)
    if kind is TableKind.PARQUET and reading.batch_format == "polars":  # a schema imports pandas
        check_polars_holds(cast("ParquetSource", source).schema, "polars")
    return _cut(source, source.columns, reading)


def is_described(data: Any) -> bool:
    """Return whether paths are a folder that a file in it describes: it says which files count."""
    marks = _plugins.own_names("readers")
    return any(mark_at(data, mark) is not None for mark in marks)


def _open_described(data: Any, reading: ReadOptions) -> Source | None:
    """Return the source of a folder that a file in it describes, which a plugin reads."""
    for mark, dotted in _plugins.own_names("readers").items():
        place = mark_at(data, mark)
        if place is not None:
            refuse_options(reading, ["mini_batch_cost"], f"a folder that {mark} describes")
            source: Source = _plugins.loaded(dotted)(place, reading)
            if source.unit == "file":
                return source
            table = cast("TableSource", source)
            return _keyed(table, list(table.meta().columns), reading)
    return None


def _installed_format(inputs: list[FileList]) -> InstalledFormat | None:
    """Return the format of files that another package reads; None if there are none."""
    first = next(_visible(inputs), None)
    if first is None or kind_of(first.path) is not None:  # `_kind` refuses a mixture with tables
        return None
    known = {f".{name}" for name in _plugins.installed_names(_plugins.READERS)}
    if not known:
        return None
    from daskprs._inputs.installed_formats import installed_format

    suffixes = (suffix_of(file.path) for file in _visible(inputs))
    return installed_format(next((one for one in suffixes if one in known), ""))


def _open_installed(format_: InstalledFormat, files: FileList, reading: ReadOptions) -> Source:
    from daskprs._inputs.installed_formats import InstalledFormatSource

    other = next((path for path in files.paths() if suffix_of(path) != format_.suffix), None)
    if other is not None:
        raise InputError(mixed_kinds([next(iter(files.paths())), other]))
    source = InstalledFormatSource(format_, files, reading)
    check_columns_fit(reading.batch_format, source.columns)
    check_polars_holds(source.schema, reading.batch_format)
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
