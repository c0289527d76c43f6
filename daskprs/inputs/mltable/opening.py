"""From the path of an MLTable to its source."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs.errors import InputError, Option, OptionError
from daskprs.inputs.files.discover import visible
from daskprs.inputs.files.file_list import FileList
from daskprs.inputs.files.path_columns import PATH
from daskprs.inputs.files.suffixes import TableKind
from daskprs.inputs.mltable.building import Builder, as_written
from daskprs.inputs.mltable.form import (
    ENCODINGS,
    Inference,
    ReadDelimited,
    ReadJsonLines,
    ReadParquet,
)
from daskprs.inputs.mltable.formats import format_of
from daskprs.inputs.mltable.narrowing import narrowed, needed
from daskprs.inputs.mltable.paths_source import open_paths
from daskprs.inputs.mltable.place import own_names
from daskprs.inputs.mltable.read import MLTableContent, read_mltable
from daskprs.inputs.mltable.source import MLTableSource, PlacedSource
from daskprs.inputs.mltable.steps import KeepColumns, RandomSample
from daskprs.inputs.source.columns import check_columns
from daskprs.inputs.source.read_options import Partitions, check_options
from daskprs.inputs.tables import open_table
from daskprs.yaml_files.mistakes import refuse

if TYPE_CHECKING:
    import pandas as pd

    from daskprs.inputs.mltable.steps import TableStep
    from daskprs.inputs.source.read_options import ReadOptions
    from daskprs.inputs.source.source import Source

SAMPLE_BYTES = 256 << 10
SAMPLES = 16
"""Number of `SAMPLE_BYTES` mini-batches that are checked for nulls: all of a small input."""


class Opened(NamedTuple):
    """A source, and the columns that partition keys may name; None for a list of files."""

    source: Any
    columns: list[str] | None


def open_mltable(path: str, reading: ReadOptions) -> Opened:
    """Return the source of an MLTable, after every check that costs little.

    Raises
    ------
    YamlError
        When the file has mistakes; the error lists all, each with its place.
    InputError
        When the files cannot be read, or disagree.
    OptionError
        When an option concerns a setting that belongs to the MLTable.

    """
    written = read_mltable(path)
    if written.read_at < 0:
        return Opened(_open_files(written, reading), None)
    check_options(reading, "mltable")
    base = _open_base(written, _reading_of(written, reading))
    return _with_steps(written, reading, base)


def _open_files(written: MLTableContent, reading: ReadOptions) -> Source:
    check_options(reading, "mltable_files")
    if reading.input_type == "table":
        told = f": {written.document.name} has no read_…, so that it is a list of files."
        raise OptionError(Option("input_type", "table"), told)
    return open_paths(written, reading)


class _Base(NamedTuple):
    """The files of an MLTable, as a source."""

    source: PlacedSource
    files: FileList
    reading: ReadOptions
    kind: TableKind | None
    """None for a Delta table."""


def _open_base(written: MLTableContent, reading: ReadOptions) -> _Base:
    read = written.read
    if read.name == "read_delta_lake":
        from daskprs.inputs.mltable.delta import open_delta

        return _Base(open_delta(written, reading), FileList(), reading, None)
    files = _files(written)
    form = format_of(written, files)
    if form is not None:
        reading = replace(reading, partition_format=form)
    kind = {
        "read_delimited": TableKind.DELIMITED,
        "read_json_lines": TableKind.JSON_LINES,
        "read_parquet": TableKind.PARQUET,
    }[read.name]
    return _Base(open_table(kind, files, reading), files, reading, kind)


def _files(written: MLTableContent) -> FileList:
    """Return the files of a table in the order of its paths, each once."""
    found = [FileList(visible(one)) for one in written.inputs]
    if len(found) == 1:
        files = found[0]
    else:
        known = set[str]()
        files = FileList()
        for file in (file for one in found for file in one):
            if file.path not in known:
                known.add(file.path)
                files.add(file)
    if not files:
        msg = f"{written.document.name}: its paths name no file (hidden files are skipped)."
        raise InputError(msg)
    return files


def _reading_of(written: MLTableContent, given: ReadOptions) -> ReadOptions:
    """Return how the files are read: what the MLTable says, and the sizes of the call."""
    options = written.read.value
    reading = replace(given, columns=None, path_values="text", support_multi_line=False)
    wanted = [one.value for one in written.transformations if one.name == "select_partitions"]
    size = getattr(options, "partition_size", 1)
    if wanted:
        numbers = tuple(sorted(set(wanted[0])))
        reading = replace(reading, partitions=Partitions(numbers, size or 1))
    if isinstance(options, ReadDelimited | ReadJsonLines | ReadParquet):
        reading = replace(reading, include_path_column=options.include_path_column)
    if isinstance(options, ReadDelimited | ReadJsonLines):
        encoding = ENCODINGS.get(options.encoding, options.encoding)
        reading = replace(reading, encoding=encoding)
    if isinstance(options, ReadJsonLines):
        reading = replace(reading, drop_invalid_lines=options.invalid_lines == "drop")
    if written.read.name != "read_delimited":
        return reading
    return _delimited(written, options or ReadDelimited(), reading)


def _delimited(
    written: MLTableContent, options: ReadDelimited, reading: ReadOptions
) -> ReadOptions:
    inference = options.infer_column_types
    overrides = inference.column_type_overrides if isinstance(inference, Inference) else {}
    return replace(
        reading,
        delimiter=options.delimiter,
        header=options.header,
        support_multi_line=options.support_multi_line,
        empty_as_string=options.empty_as_string,
        infer_types=inference is not False,
        as_written=frozenset({*overrides, *as_written(written)}),
    )


def _with_steps(written: MLTableContent, reading: ReadOptions, base: _Base) -> Opened:
    source = base.source
    # The folders of a Delta table are columns of it, as its log says.
    carried = [] if base.kind is None else source.path_names
    builder = Builder(written, source.meta(), carried, lambda: _samples(base))
    options = written.read.value
    inference = getattr(options, "infer_column_types", None)
    overrides = inference.column_type_overrides if isinstance(inference, Inference) else {}
    is_path_included = getattr(options, "include_path_column", False)
    builder.begin(options.path_column if is_path_included else PATH, overrides)
    builder.add_all()
    refuse(builder.mistakes)
    steps = builder.steps
    if reading.columns is not None:
        check_columns(reading.columns, list(builder.meta.columns), "columns")
        steps.append(KeepColumns(reading.columns))
        builder.meta = builder.meta[list(reading.columns)]
    source, steps = _narrowed(base, steps, builder)
    told = [one.model_dump(exclude_unset=True) for one in written.transformations]
    is_sampled = any(isinstance(step, RandomSample) for step in steps)
    table = MLTableSource(source, steps, told, _names(base) if is_sampled else {})
    return Opened(table, list(table.meta().columns))


def _names(base: _Base) -> dict[str, str]:
    """Return a name for each file that does not depend on where its folder lies."""
    if base.kind is None:
        return dict(base.source.own_names())  # type: ignore[attr-defined]
    return dict(zip(base.files.paths(), own_names(base.files), strict=True))


def _narrowed(
    base: _Base, steps: list[TableStep], builder: Builder
) -> tuple[PlacedSource, list[TableStep]]:
    """Return the source and the steps without the columns that the result does not use."""
    source = base.source
    of_paths = {PATH, *source.path_names}
    there = [name for name in source.meta().columns if name not in of_paths]
    wanted = needed(steps, list(builder.meta.columns), there)
    if base.kind is None or len(wanted) == len(there):
        return source, steps
    reading = replace(base.reading, columns=wanted)
    left_out = set(there) - set(wanted)
    return open_table(base.kind, base.files, reading), list(narrowed(steps, left_out))


def _samples(base: _Base) -> list[pd.DataFrame]:
    """Return rows from all over the files, or all rows of small ones."""
    source = base.source
    if base.kind is not None:
        small = replace(base.reading, mini_batch_size=SAMPLE_BYTES)
        source = open_table(base.kind, base.files, small)
    count = source.count()
    step = 1 if count is None else -(-count // SAMPLES)
    picked = islice(source.mini_batches(), 0, None if count else SAMPLES, step or 1)
    frames = []
    with closing(source.reader()) as reader:
        for one in picked:
            try:
                frames.append(reader.load(one))
            except Exception:  # noqa: BLE001, S112 - what is wrong with it is told by its mini-batch
                continue
    return frames
