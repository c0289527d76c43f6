"""`Dataset`: what makes datasets, as in SDK v1."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from daskprs.azure.v1.data.column_types import (
    delimited_reading,
    dtypes_of,
    encoding_of,
    refuse_types_of_parquet,
)
from daskprs.azure.v1.data.dataset import AbstractDataset, FileDataset, TabularDataset, places_of
from daskprs.azure.v1.data.datastore import DataPath, Datastore
from daskprs.errors import UsageError
from daskprs.inputs.files.discover import discover
from daskprs.inputs.files.partition_format import PartitionFormat
from daskprs.yaml_files.mistakes import nearest_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    import pandas as pd

    from daskprs.azure.v1.workspace_like import WorkspaceLike

Kind = TypeVar("Kind", FileDataset, TabularDataset)


class FileDatasetFactory:
    """Makes datasets of files."""

    @staticmethod
    def from_files(
        path: Any,
        validate: bool = True,  # noqa: FBT001, FBT002 - the original's signature
        partition_format: str | None = None,
        is_file: bool = False,  # noqa: FBT001, FBT002 - the same
    ) -> FileDataset:
        """Return files as a dataset.

        Parameters
        ----------
        path
            A file, folder or glob, as text, ``datastore.path('…')`` or ``(datastore, '…')``, or a
            list of these.
        validate
            Look now whether they are there.
        partition_format
            How the ends of their paths carry values: ``"{user}/{season}/{genre}.wav"``.
        is_file
            Without effect: what is a file is seen.

        Raises
        ------
        InputError
            When something is not there.

        """
        del is_file
        return _made(FileDataset, path, {}, partition_format, validate=validate)

    @staticmethod
    def upload_directory(
        src_dir: str | PathLike[str],
        target: Any,
        pattern: str | None = None,
        overwrite: bool = False,  # noqa: FBT001, FBT002 - the original's signature
        show_progress: bool = True,  # noqa: FBT001, FBT002 - the same
    ) -> FileDataset:
        """Copy a folder to a place on a datastore, and return it there as a dataset."""
        if pattern is not None:
            msg = f"pattern={pattern!r}: a folder is copied whole. Copy the files that you want."
            raise UsageError(msg)
        path = target if isinstance(target, DataPath) else DataPath(*target)
        path.datastore.upload(src_dir, path.path_on_datastore, overwrite, show_progress)
        return FileDatasetFactory.from_files(path)


class TabularDatasetFactory:
    """Makes datasets of tables."""

    @staticmethod
    def from_delimited_files(
        path: Any,
        validate: bool = True,  # noqa: FBT001, FBT002 - the original's signature
        include_path: bool = False,  # noqa: FBT001, FBT002 - the same
        infer_column_types: bool = True,  # noqa: FBT001, FBT002 - the same
        set_column_types: Mapping[str, Any] | None = None,
        separator: str = ",",
        header: Any = True,  # noqa: FBT002 - the same
        partition_format: str | None = None,
        support_multi_line: bool = False,  # noqa: FBT001, FBT002 - the same
        empty_as_string: bool = False,  # noqa: FBT001, FBT002 - the same
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
            Types by samples; False: all are text but those of `set_column_types`.
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
        reading = delimited_reading(separator, header, encoding, include_path=include_path)
        reading |= {"support_multi_line": support_multi_line}
        types = dtypes_of(set_column_types)
        made = _made(TabularDataset, path, reading, partition_format, validate=validate)
        if not infer_column_types:
            types = {**dict.fromkeys(made.columns_of_files(), "str"), **types}
        made.reading["dtypes"] = types
        return made

    @staticmethod
    def from_parquet_files(
        path: Any,
        validate: bool = True,  # noqa: FBT001, FBT002 - the original's signature
        include_path: bool = False,  # noqa: FBT001, FBT002 - the same
        set_column_types: Mapping[str, Any] | None = None,
        partition_format: str | None = None,
    ) -> TabularDataset:
        """Return Parquet as a table; it has types of its own."""
        refuse_types_of_parquet(set_column_types)
        reading = {"include_path_column": include_path}
        return _made(TabularDataset, path, reading, partition_format, validate=validate)

    @staticmethod
    def from_json_lines_files(
        path: Any,
        validate: bool = True,  # noqa: FBT001, FBT002 - the original's signature
        include_path: bool = False,  # noqa: FBT001, FBT002 - the same
        set_column_types: Mapping[str, Any] | None = None,
        partition_format: str | None = None,
        invalid_lines: str = "error",
        encoding: str = "utf8",
    ) -> TabularDataset:
        """Return JSON lines as a table; a line that is none is an error."""
        if invalid_lines != "error":
            msg = (
                f"invalid_lines={invalid_lines!r}: a line that is no JSON is an error here. In an "
                "MLTable file it may be dropped: read_json_lines with invalid_lines: drop."
            )
            raise UsageError(msg)
        reading = {"include_path_column": include_path, "encoding": encoding_of(encoding)}
        made = _made(TabularDataset, path, reading, partition_format, validate=validate)
        made.reading["dtypes"] = dtypes_of(set_column_types)
        return made

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


class Dataset:
    """Makes datasets, and finds those that were registered in a workspace."""

    File = FileDatasetFactory
    Tabular = TabularDatasetFactory

    @staticmethod
    def get_by_name(workspace: WorkspaceLike, name: str, version: Any = None) -> AbstractDataset:
        """Return a dataset that was registered in a workspace.

        Raises
        ------
        UsageError
            When there is none of that name.

        """
        del version
        known: Mapping[str, AbstractDataset] = workspace.datasets
        if name not in known:
            msg = (
                f"there is no dataset {name!r} in this workspace ({nearest_of(name, [*known])}). "
                "To register one: "
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
