"""An MLTable that reads nothing: a list of files, some of which its transformations keep."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd

from daskprs.errors import InputError
from daskprs.inputs.files.discover import discover
from daskprs.inputs.files.file_list import FileList
from daskprs.inputs.files.path_columns import PATH, PathColumns
from daskprs.inputs.files.source import FilesSource
from daskprs.inputs.mltable.building import Builder
from daskprs.inputs.mltable.form import FORMAT
from daskprs.inputs.mltable.formats import format_of
from daskprs.inputs.mltable.place import own_names
from daskprs.inputs.mltable.steps import PieceContext, run
from daskprs.inputs.source.read_options import Partitions
from daskprs.inputs.source.sizes import files_per_mini_batch
from daskprs.yaml_files.mistakes import refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daskprs.inputs.mltable.read import MLTableContent
    from daskprs.inputs.source.read_options import ReadOptions


def open_paths(written: MLTableContent, reading: ReadOptions) -> FilesSource:
    """Return the source of a list of files.

    Its transformations work on a table of one row for each file: its path, and what that carries.

    Raises
    ------
    YamlError
        When a transformation names another column, or a file does not match the format.
    InputError
        When no file is left.

    """
    inputs = _inputs(written)
    files = FileList(file for one in inputs for file in one)
    partition_format = format_of(written, files)
    if any(one.name != FORMAT for one in written.transformations):
        kept = set(_kept(written, files, replace(reading, partition_format=partition_format)))
        inputs = _only(inputs, kept)
    if not any(inputs):
        msg = f"{written.document.name}: no file is left of what its paths name."
        raise InputError(msg)
    keys = reading.partition_keys
    count = files_per_mini_batch(None if keys else reading.mini_batch_size)
    return FilesSource(inputs, count, partition_format, keys)


def _inputs(written: MLTableContent) -> list[FileList]:
    own = written.document.name
    inputs = discover(written.entries)
    return [FileList(file for file in one if file.path != own) for one in inputs]


def _only(inputs: Sequence[FileList], kept: set[int]) -> list[FileList]:
    first, left = 0, []
    for one in inputs:
        left.append(FileList(file for at, file in enumerate(one, first) if at in kept))
        first += len(one)
    return [one for one in left if one]


def _kept(written: MLTableContent, files: FileList, reading: ReadOptions) -> list[int]:
    """Return the places of the files that are kept."""
    table = _table(files, reading)
    table = table.iloc[_partitions(written, len(files))]
    names = [name for name in table.columns if name != PATH]
    builder = Builder(written, table.iloc[:0], names, lambda: [table])
    builder.add_all()
    refuse(builder.mistakes)
    offsets = [_number_of(name) for name in own_names(files)]
    piece = PieceContext(
        table, (0,) * len(builder.steps), "", lambda: offsets, lambda row: files[row].path
    )
    return [int(row) for row in run(builder.steps, piece)[0].index]


def _table(files: FileList, reading: ReadOptions) -> pd.DataFrame:
    paths = pd.DataFrame({PATH: list(files.paths())})
    if reading.partition_format is None:
        return paths
    carried = PathColumns(files, replace(reading, path_values="text"))
    values = [carried.values(path) for path in files.paths()]
    return paths.join(pd.DataFrame(values, columns=carried.names))


def _partitions(written: MLTableContent, count: int) -> list[int]:
    """Return which files are wanted: each is a partition."""
    for one in written.transformations:
        if one.name == "select_partitions":
            wanted = Partitions(tuple(sorted(set(one.value))), 1)
            wanted.check(count)
            return list(wanted.wanted)
    return list(range(count))


def _number_of(name: str) -> int:
    digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8)
    return int.from_bytes(digest.digest(), "big")
