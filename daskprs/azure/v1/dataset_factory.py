"""`Dataset`: makes datasets, and describes how their text is written, as in SDK v1."""

from __future__ import annotations

import re
import secrets
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from daskprs._inputs.files.discover import discover
from daskprs._inputs.files.partition_format import PartitionFormat
from daskprs._suggest import nearest_of
from daskprs.azure._mltable.form import ENCODINGS
from daskprs.azure.v1.absent import Known
from daskprs.azure.v1.dataset import AbstractDataset, FileDataset, TabularDataset, places_of
from daskprs.azure.v1.datastore import DataPath, Datastore
from daskprs.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    import pandas as pd

    from daskprs.azure.v1.workspace import Workspace

Kind = TypeVar("Kind", FileDataset, TabularDataset)
YEAR_FIRST = re.compile("%Y[-/.]?%m")
"""A date format that is recognized from the values."""


class DataType(Known):
    """The type of a column: made by its class methods."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def __repr__(self) -> str:
        return f"DataType({self.dtype!r})"

    @classmethod
    def to_string(cls) -> DataType:
        """Return text."""
        return cls("str")

    @classmethod
    def to_long(cls) -> DataType:
        """Return whole numbers."""
        return cls("int64")

    @classmethod
    def to_float(cls, decimal_mark: str = ".") -> DataType:
        """Return numbers."""
        if decimal_mark != ".":
            msg = f"to_float(decimal_mark={decimal_mark!r}): numbers are read with a point."
            raise UsageError(msg)
        return cls("float64")

    @classmethod
    def to_bool(cls) -> DataType:
        """Return truth values."""
        return cls("bool")

    @classmethod
    def to_datetime(cls, formats: Any = None) -> DataType:
        """Return points in time, written as ISO 8601 has it: the year first, then the month."""
        given = [formats] if isinstance(formats, str) else formats or ()
        if not all(YEAR_FIRST.match(one) for one in given):
            msg = (
                f"to_datetime(formats={formats!r}): dates are read with the year first. In an "
                "MLTable file they may have formats: convert_column_types."
            )
            raise UsageError(msg)
        has_zone = any(one.endswith(("Z", "%z")) for one in given)
        return cls("datetime64[ns, UTC]" if has_zone else "datetime64[ns]")


class PromoteHeadersBehavior(StrEnum):
    """Which files of delimited text begin with a header."""

    NO_HEADERS = "no_header"
    ONLY_FIRST_FILE_HAS_HEADERS = "from_first_file"
    COMBINE_ALL_FILES_HEADERS = "all_files_different_headers"
    ALL_FILES_HAVE_SAME_HEADERS = "all_files_same_headers"


def dtypes_of(types: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return types of columns as `daskprs.parallel_run` takes them."""
    return {
        name: one.dtype if isinstance(one, DataType) else one for name, one in (types or {}).items()
    }


def delimited_reading(
    separator: str, header: Any, encoding: str, *, include_path: bool, multi_line: bool
) -> dict[str, Any]:
    """Return the reading options of delimited text."""
    if isinstance(header, bool):
        header = "all_files_same_headers" if header else "no_header"
    return {
        "delimiter": separator,
        "header": header.value if isinstance(header, PromoteHeadersBehavior) else header,
        "encoding": ENCODINGS.get(encoding, encoding),
        "include_path_column": include_path,
        "support_multi_line": multi_line,
    }


def parquet_reading(types: Mapping[str, Any] | None, *, include_path: bool) -> dict[str, Any]:
    """Return the reading options of Parquet, and refuse other types for its columns."""
    if types:
        msg = (
            "set_column_types: Parquet has types of its own. In an MLTable file they can be "
            "changed: convert_column_types."
        )
        raise UsageError(msg)
    return {"include_path_column": include_path}


class FileDatasetFactory(Known):
    """Makes datasets of files."""

    @staticmethod
    def from_files(
        path: Any, validate: bool = True, partition_format: str | None = None, is_file: bool = False
    ) -> FileDataset:
        """Return files as a dataset.

        Parameters
        ----------
        path
            A file, folder or glob, as text, ``datastore.path('…')`` or ``(datastore, '…')``, or a
            list of these.
        validate
            Refuse paths that do not exist.
        partition_format
            How the ends of their paths carry values: ``"{user}/{season}/{genre}.wav"``.
        is_file
            Without effect: each path is looked at.

        Raises
        ------
        InputError
            When a path does not exist.

        """
        return _made(FileDataset, path, {}, partition_format, validate=validate)

    @staticmethod
    def upload_directory(
        src_dir: str | PathLike[str],
        target: Any,
        pattern: str | None = None,
        overwrite: bool = False,
        show_progress: bool = True,
    ) -> FileDataset:
        """Copy a folder to a path on a datastore, and return the copy as a dataset."""
        if pattern is not None:
            msg = f"pattern={pattern!r}: a folder is copied whole. Copy the files that you want."
            raise UsageError(msg)
        path = target if isinstance(target, DataPath) else DataPath(*target)
        path.datastore.upload(src_dir, path.path_on_datastore, overwrite, show_progress)
        return FileDatasetFactory.from_files(path)


class TabularDatasetFactory(Known):
    """Makes datasets of tables."""

    @staticmethod
    def from_delimited_files(
        path: Any,
        validate: bool = True,
        include_path: bool = False,
        infer_column_types: bool = True,
        set_column_types: Mapping[str, Any] | None = None,
        separator: str = ",",
        header: Any = True,
        partition_format: str | None = None,
        support_multi_line: bool = False,
        empty_as_string: bool = False,
        encoding: str = "utf8",
    ) -> TabularDataset:
        """Return delimited text as a table.

        Parameters
        ----------
        path, validate, partition_format
            As those of `FileDatasetFactory.from_files`.
        include_path
            Add the path of each row's file as the column ``Path``.
        infer_column_types
            Infer types from samples; False: all columns are text but those of `set_column_types`.
        set_column_types
            A `DataType` for each column, by name.
        separator, header, support_multi_line, encoding
            How the text is written.
        empty_as_string
            Refused: an empty field is null.

        """
        if empty_as_string:
            msg = (
                "empty_as_string=True: an empty field is null here. In an MLTable file it may be "
                "text: read_delimited with empty_as_string: true."
            )
            raise UsageError(msg)
        reading = delimited_reading(
            separator, header, encoding, include_path=include_path, multi_line=support_multi_line
        )
        types = dtypes_of(set_column_types)
        made = _made(TabularDataset, path, reading, partition_format, validate=validate)
        if not infer_column_types:
            types = {**dict.fromkeys(made.columns_of_files(), "str"), **types}
        made.reading["dtypes"] = types
        return made

    @staticmethod
    def from_parquet_files(
        path: Any,
        validate: bool = True,
        include_path: bool = False,
        set_column_types: Mapping[str, Any] | None = None,
        partition_format: str | None = None,
    ) -> TabularDataset:
        """Return Parquet as a table; it has types of its own."""
        reading = parquet_reading(set_column_types, include_path=include_path)
        return _made(TabularDataset, path, reading, partition_format, validate=validate)

    @staticmethod
    def from_json_lines_files(
        path: Any,
        validate: bool = True,
        include_path: bool = False,
        set_column_types: Mapping[str, Any] | None = None,
        partition_format: str | None = None,
        invalid_lines: str = "error",
        encoding: str = "utf8",
    ) -> TabularDataset:
        """Return JSON lines as a table; a line that is not JSON is an error."""
        if invalid_lines != "error":
            msg = (
                f"invalid_lines={invalid_lines!r}: a line that is not JSON is an error here. In an "
                "MLTable file it may be dropped: read_json_lines with invalid_lines: drop."
            )
            raise UsageError(msg)
        reading = {
            "include_path_column": include_path,
            "encoding": ENCODINGS.get(encoding, encoding),
            "dtypes": dtypes_of(set_column_types),
        }
        return _made(TabularDataset, path, reading, partition_format, validate=validate)

    @staticmethod
    def register_pandas_dataframe(
        dataframe: pd.DataFrame, target: Any = None, name: str | None = None, **_: Any
    ) -> TabularDataset:
        """Return a frame as a table: written as Parquet to a target, and registered by its name.

        Without a target it stays in memory.
        """
        if target is None:
            made = TabularDataset(dataframe, {})
            made.name = name
            return made
        path = target.path() if isinstance(target, Datastore) else DataPath(*target)
        folder = Path(path.place) / secrets.token_hex(8)
        folder.mkdir(parents=True)
        dataframe.to_parquet(folder / "part-00000.parquet", index=False)
        made = TabularDatasetFactory.from_parquet_files(str(folder))
        workspace = path.datastore.workspace
        return made if workspace is None or name is None else made.register(workspace, name)


class Dataset(Known):
    """Makes datasets, and finds those that were registered in a workspace."""

    File = FileDatasetFactory
    Tabular = TabularDatasetFactory

    @staticmethod
    def get_by_name(workspace: Workspace, name: str, version: Any = None) -> AbstractDataset:
        """Return a dataset that was registered in a workspace.

        Raises
        ------
        UsageError
            When the workspace has no dataset of this name.

        """
        known = workspace.datasets
        if name not in known:
            near = nearest_of(name, [*known])
            msg = (
                f"this workspace has no dataset {name!r} ({near}). To register one: "
                f"Dataset.File.from_files('/path').register(ws, {name!r})."
            )
            raise UsageError(msg)
        return known[name]


def _made(
    kind: type[Kind],
    path: Any,
    reading: dict[str, Any],
    partition_format: str | None,
    *,
    validate: bool,
) -> Kind:
    places = places_of(path)
    if validate:
        discover(places)
    unit = "files" if kind is FileDataset else "table"
    keys = [] if partition_format is None else PartitionFormat(partition_format).names
    options = {"input_type": unit, "partition_format": partition_format, **reading}
    return kind(places, options, keys)
