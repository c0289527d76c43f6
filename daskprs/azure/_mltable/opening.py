"""From the path of an MLTable to its source: a table with steps, or a list of files."""

from __future__ import annotations

import hashlib
from collections import Counter
from contextlib import closing
from dataclasses import replace
from functools import cache
from itertools import chain, count, islice
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from daskprs._inputs.files.discover import discover, visible
from daskprs._inputs.files.file_list import FileList
from daskprs._inputs.files.path_columns import PATH, PathColumns
from daskprs._inputs.files.source import FilesSource
from daskprs._inputs.files.suffixes import TableKind
from daskprs._inputs.source.columns import check_columns
from daskprs._inputs.source.read_options import Partitions, refuse_options
from daskprs._inputs.tables import open_table
from daskprs.azure._mltable.building import Builder, as_written
from daskprs.azure._mltable.content import MLTableContent, read_mltable
from daskprs.azure._mltable.expression import BadExpression
from daskprs.azure._mltable.form import (
    ENCODINGS,
    FORMAT,
    ReadDelimited,
    ReadDeltaLake,
    ReadForm,
    ReadJsonLines,
    ReadParquet,
)
from daskprs.azure._mltable.source import MLTableSource, PlacedSource
from daskprs.azure._mltable.steps import (
    KeepColumns,
    PieceContext,
    RandomSample,
    Unconverted,
    needed,
    run,
)
from daskprs.azure._yaml_files.mistakes import refuse
from daskprs.errors import InputError, Option, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from daskprs._inputs.source.input_file import InputFile
    from daskprs._inputs.source.read_options import ReadOptions

KINDS: dict[type[ReadForm], TableKind] = {
    ReadDelimited: TableKind.DELIMITED,
    ReadJsonLines: TableKind.JSON_LINES,
    ReadParquet: TableKind.PARQUET,
}
OF_THE_FILE = (
    *("delimiter", "csv_options", "header", "support_multi_line", "dtypes", "encoding"),
    *("partition_format", "include_path_column", "meta"),
)
"""Options of tables that an MLTable has keys of its own for."""
OF_TABLES = (*OF_THE_FILE, "columns", "batch_format")
SAMPLE_BYTES = 256 << 10
SAMPLES = 16
"""Number of `SAMPLE_BYTES` mini-batches that are checked for nulls: all of a small input."""


def open_mltable(path: str, reading: ReadOptions) -> MLTableSource | FilesSource:
    """Return the source of an MLTable, after every check that costs little.

    A YamlError has all mistakes in the file, each with its place. Files that cannot be read, or
    disagree, are an InputError, and options that belong to the MLTable an OptionError.
    """
    written = read_mltable(path)
    if written.read_at < 0:
        return _open_files(written, reading)
    refuse_options(reading, OF_THE_FILE, "an MLTable, which says it itself")
    reading = replace(reading, batch_format="pandas")  # which its steps work on
    return _open_rows(written, reading, _open_base(written, _reading_of(written, reading)))


# ---- a table ----


class _Base(NamedTuple):
    """The files of an MLTable, as a source."""

    source: PlacedSource
    files: FileList
    reading: ReadOptions
    kind: TableKind | None
    """None for a Delta table."""


def _open_base(written: MLTableContent, reading: ReadOptions) -> _Base:
    options = written.options
    if isinstance(options, ReadDeltaLake):
        from daskprs.azure._mltable.delta import open_delta

        return _Base(open_delta(written, options, reading), FileList(), reading, None)
    files = _files(written)
    reading = replace(reading, partition_format=written.partition_format(files))
    kind = KINDS[type(options)]
    return _Base(open_table(kind, files, reading), files, reading, kind)


def _files(written: MLTableContent) -> FileList:
    """Return the files of a table in the order of its paths, each once."""
    found = chain.from_iterable(visible(one) for one in written.inputs)
    if len(written.inputs) == 1:
        files = FileList(found)
    else:
        files = FileList({file.path: file for file in found}.values())
    if not files:
        msg = f"{written.document.name}: its paths name no file (hidden files are skipped)."
        raise InputError(msg)
    return files


def _reading_of(written: MLTableContent, given: ReadOptions) -> ReadOptions:
    """Return how the files are read: as the MLTable says, in the sizes of the call."""
    options = written.options
    reading = replace(
        given, columns=None, path_values="text", support_multi_line=False, path_aside=False
    )
    if (numbers := written.partitions) is not None:
        reading = replace(
            reading, partitions=Partitions(numbers, getattr(options, "partition_size", 1))
        )
    if not isinstance(options, ReadDeltaLake):
        reading = replace(reading, include_path_column=options.include_path_column)
    if isinstance(options, ReadDelimited | ReadJsonLines):
        reading = replace(reading, encoding=ENCODINGS.get(options.encoding, options.encoding))
    if isinstance(options, ReadJsonLines):
        reading = replace(reading, drop_invalid_lines=options.invalid_lines == "drop")
    if isinstance(options, ReadDelimited):
        reading = replace(
            reading,
            delimiter=options.delimiter,
            header=options.header,
            support_multi_line=options.support_multi_line,
            empty_as_string=options.empty_as_string,
            infer_types=options.infer_column_types is not False,
            as_written=frozenset({*options.overrides, *as_written(written)}),
        )
    return reading


def _open_rows(written: MLTableContent, reading: ReadOptions, base: _Base) -> MLTableSource:
    # The folders of a Delta table are columns of it, as its log says.
    carried = [] if base.kind is None else base.source.path_names
    builder = Builder(written, base.source.meta(), carried, cache(lambda: _samples(base)))
    builder.begin(written.options)
    builder.add_all()
    refuse(builder.mistakes)
    if reading.columns is not None:
        check_columns(reading.columns, list(builder.meta.columns), "columns")
        builder.add(KeepColumns(reading.columns))
    source, steps = _narrowed(base, builder), builder.steps
    told = [one.model_dump(exclude_unset=True) for one in written.transformations]
    is_sampled = any(isinstance(step, RandomSample) for step in steps)
    return MLTableSource(source, steps, told, _names(base) if is_sampled else {})


def _names(base: _Base) -> dict[str, str]:
    """Return a name for each file that does not depend on where its folder lies."""
    if base.kind is None:
        return dict(base.source.own_names())  # type: ignore[attr-defined]
    return dict(zip(base.files.paths(), _own_names(base.files), strict=True))


def _own_names(files: Iterable[InputFile]) -> Iterator[str]:
    known = Counter[str]()
    for file in files:
        name = file.relative or file.name
        yield f"{name}|{known[name]}" if known[name] else name
        known[name] += 1


def _narrowed(base: _Base, builder: Builder) -> PlacedSource:
    """Return the source without the columns that the result does not use."""
    source = base.source
    of_paths = {PATH, *source.path_names}
    there = [name for name in source.meta().columns if name not in of_paths]
    wanted = needed(builder.steps, list(builder.meta.columns), there)
    if base.kind is None or len(wanted) == len(there):
        return source
    return open_table(base.kind, base.files, replace(base.reading, columns=wanted))


def _samples(base: _Base) -> list[pd.DataFrame]:
    """Return rows from all over the files, or all rows of small ones."""
    source = base.source
    if base.kind is not None:
        small = replace(base.reading, mini_batch_size=SAMPLE_BYTES)
        source = open_table(base.kind, base.files, small)
    known = source.count()
    step = 1 if known is None else -(-known // SAMPLES)
    picked = islice(source.mini_batches(), 0, None if known else SAMPLES, step or 1)
    frames = []
    with closing(source.reader()) as reader:
        for one in picked:
            try:
                frames.append(reader.load(one))
            except Exception:  # noqa: BLE001, S112 - its own mini-batch reports the error  # nosec B112
                continue
    return frames


# ---- a list of files ----


def _open_files(written: MLTableContent, reading: ReadOptions) -> FilesSource:
    """Return the source of a list of files.

    The transformations work on a table of one row for each file: its path, and the values of a
    partition format.
    """
    refuse_options(reading, OF_TABLES, "an MLTable that is a list of files")
    if reading.input_type == "table":
        told = f": {written.document.name} has no read_…, so that it is a list of files."
        raise OptionError(Option("input_type", "table"), told)
    own = written.document.name
    found = discover(written.entries, reading.store_requests)
    inputs = [FileList(file for file in one if file.path != own) for one in found]
    files = FileList(chain.from_iterable(inputs))
    partition_format = written.partition_format(files)
    if any(one.name != FORMAT for one in written.transformations):
        kept = set(_kept(written, files, replace(reading, partition_format=partition_format)))
        number = count()
        inputs = [FileList(file for file in one if next(number) in kept) for one in inputs]
        inputs = [one for one in inputs if one]
    if not any(inputs):
        msg = f"{own}: no file is left of what its paths name."
        raise InputError(msg)
    return FilesSource(inputs, replace(reading, partition_format=partition_format))


def _kept(written: MLTableContent, files: FileList, reading: ReadOptions) -> list[int]:
    """Return the places of the files that are kept; each file is a partition."""
    table = pd.DataFrame({PATH: list(files.paths())})
    if reading.partition_format is not None:
        carried = PathColumns(files, replace(reading, path_values="text"))
        values = [carried.values(path) for path in files.paths()]
        table = table.join(pd.DataFrame(values, columns=carried.names))
    if written.partitions is not None:
        Partitions(written.partitions, 1).check(len(files))
    names = [name for name in table.columns if name != PATH]
    builder = Builder(written, table.iloc[:0], names, lambda: [table])
    builder.add_all()
    refuse(builder.mistakes)
    offsets = [_number_of(name) for name in _own_names(files)]
    seen = (0,) * len(builder.steps)
    piece = PieceContext(table, seen, "", lambda: offsets, lambda row: files[row].path)
    try:
        rows, _ = run(builder.steps, piece)
    except (Unconverted, BadExpression) as error:
        msg = f"{written.document.name}: {error}"
        raise InputError(msg) from None
    return [int(row) for row in rows.index]


def _number_of(name: str) -> int:
    digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8)
    return int.from_bytes(digest.digest(), "big")
