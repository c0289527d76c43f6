"""`OutputFileDatasetConfig` and `PipelineData`: outputs of a step that others read."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from daskprs._inputs.files.partition_format import PartitionFormat
from daskprs.azure.v1.absent import Known
from daskprs.azure.v1.dataset import (
    AbstractDataset,
    DatasetConsumptionConfig,
    FileDataset,
    TabularDataset,
)
from daskprs.azure.v1.dataset_factory import delimited_reading, dtypes_of, parquet_reading
from daskprs.azure.v1.datastore import Datastore
from daskprs.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daskprs.azure.v1.workspace import Workspace


@dataclass(frozen=True, eq=False)
class OutputDataset(Known):
    """A step's future output, as a dataset of a later step."""

    output: Output
    reading: Mapping[str, Any] | None = None
    """Options for reading the output as a table; None: as files."""
    pattern: str = ""
    """The glob of files below the output's folder; empty: all files."""

    @property
    def name(self) -> str:
        """The name of the output."""
        return self.output.name

    def located(self) -> AbstractDataset:
        """Return the dataset; a step must have written it."""
        if self.output.place is None:
            msg = (
                f"{self.output!r} is an input, and no step has written it. Run the step that "
                "writes it before, or both in one Pipeline."
            )
            raise UsageError(msg)
        place = [str(self.output.place / self.pattern)]
        if self.reading is not None:
            return TabularDataset(place, {"input_type": "table", **self.reading})
        form = self.output.partition_format
        keys = () if form is None else PartitionFormat(form).names
        return FileDataset(place, {"input_type": "files", "partition_format": form}, keys)

    def register(self, name: str, **_: Any) -> OutputDataset:
        """Return this dataset, to be registered in the workspace once it is written."""
        self.output.registered_as = name
        return self

    def as_named_input(self, name: str) -> DatasetConsumptionConfig:
        """Return this dataset as an input of a step."""
        return DatasetConsumptionConfig(name, self)

    def as_mount(self, path_on_compute: str | None = None) -> DatasetConsumptionConfig:
        """Return this dataset as an input of a step, read in place."""
        return self.as_named_input(self.output.name).as_mount(path_on_compute)

    def as_download(self, path_on_compute: str | None = None) -> DatasetConsumptionConfig:
        """Return this dataset as an input of a step, read in place."""
        return self.as_named_input(self.output.name).as_download(path_on_compute)

    def parse_delimited_files(
        self,
        include_path: bool = False,
        separator: str = ",",
        header: Any = True,
        partition_format: str | None = None,
        file_extension: str | None = None,
        set_column_types: Mapping[str, Any] | None = None,
        quoted_line_breaks: bool = False,
    ) -> OutputDataset:
        """Return this dataset, or its files with an extension, as a table of delimited text."""
        reading = delimited_reading(
            separator, header, "utf8", include_path=include_path, multi_line=quoted_line_breaks
        )
        types = dtypes_of(set_column_types) or None
        reading |= {"partition_format": partition_format, "dtypes": types}
        return OutputDataset(self.output, reading, _pattern(file_extension))

    def parse_parquet_files(
        self,
        include_path: bool = False,
        partition_format: str | None = None,
        file_extension: str | None = None,
        set_column_types: Mapping[str, Any] | None = None,
    ) -> OutputDataset:
        """Return this dataset, or its files with an extension, as a table of Parquet."""
        reading = parquet_reading(set_column_types, include_path=include_path)
        reading["partition_format"] = partition_format
        return OutputDataset(self.output, reading, _pattern(file_extension))


def _pattern(file_extension: str | None) -> str:
    """Return the glob of files with an extension."""
    return f"**/*{file_extension}" if file_extension else ""


class Output(Known):
    """A folder that a step writes."""

    def __init__(self, name: str, datastore: Datastore | None, path: str) -> None:
        self.name = name
        self.datastore = datastore
        """The datastore of the output; None: it is in the job folder."""
        self.path = path
        """The path on the datastore; ``{run-id}`` and ``{output-name}`` stand for these."""
        self.partition_format: str | None = None
        self.overwrite = False
        self.registered_as: str | None = None
        """The dataset name under which the finished output is registered."""
        self.producer: Any = None
        """The step that writes the output."""
        self.place: Path | None = None
        """The output's folder, known once the step has begun."""
        self._dataset = OutputDataset(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def path_on_datastore(self, run_id: str) -> str:
        """Return the output's path on the datastore for one run."""
        return self.path.replace("{run-id}", run_id).replace("{output-name}", self.name)

    def place_of(self, run_id: str) -> Path | None:
        """Return the output's folder for one run; None: in the job folder."""
        if self.datastore is None:
            return None
        return Path(self.datastore.place(self.path_on_datastore(run_id)))

    def register_in(self, workspace: Workspace | None) -> None:
        """Register the output as a dataset of a workspace, if requested."""
        if self.registered_as is not None and workspace is not None:
            self.as_dataset().located().register(workspace, self.registered_as)

    def as_dataset(self) -> OutputDataset:
        """Return this output as a dataset of a later step."""
        return self._dataset

    def as_input(self, name: str | None = None) -> DatasetConsumptionConfig:
        """Return this output as an input of a later step."""
        return self.as_dataset().as_named_input(name or self.name)

    def as_mount(self, *_: Any, **__: Any) -> Self:
        """Return this output: a step writes it in place."""
        return self

    as_download = as_mount

    def as_upload(self, overwrite: bool = False, source_globs: Any = None) -> Self:
        """Return this output; with `overwrite`, the step replaces an existing output file."""
        if source_globs is not None:
            msg = "source_globs: a step writes its output in place, so all its files are there."
            raise UsageError(msg)
        self.overwrite = overwrite
        return self


def as_output(given: Any) -> Any:
    """Return the output that is given as a path of a folder, as a dataset, or as an output."""
    if isinstance(given, OutputDataset):
        return given.output
    if not isinstance(given, str | os.PathLike):
        return given
    folder = Path(given).absolute()
    return Output(folder.name, Datastore.local(folder.name, folder), "")


class OutputFileDatasetConfig(Output):
    """A folder that a step writes, as SDK v1 recommends it.

    Parameters
    ----------
    name : str, optional
        Its name in a run.
    destination : tuple of (Datastore, str), optional
        Its place; ``{run-id}`` and ``{output-name}`` in the path stand for these. Default: in the
        job folder.
    source : str, optional
        Without effect: a step writes its output in place.
    partition_format : str, optional
        How the paths in it carry values.

    """

    def __init__(
        self,
        name: str | None = None,
        destination: tuple[Datastore, str | None] | None = None,
        source: str | None = None,
        partition_format: str | None = None,
    ) -> None:
        datastore, path = destination or (None, None)
        super().__init__(name or "output", datastore, path or "dataset/{run-id}/{output-name}")
        self.partition_format = partition_format

    def register_on_complete(self, name: str, **_: Any) -> Self:
        """Return this output, to be registered as a dataset of the workspace once it is written."""
        self.registered_as = name
        return self

    def read_delimited_files(self, path_glob: str | None = None, **given: Any) -> Self:
        """Return this output, whose files, or those that match, are delimited text."""
        table = self.as_dataset().parse_delimited_files(**given)
        self._dataset = replace(table, pattern=path_glob or "")
        return self

    def read_parquet_files(self, path_glob: str | None = None, **given: Any) -> Self:
        """Return this output, whose files, or those that match, are Parquet."""
        table = self.as_dataset().parse_parquet_files(**given)
        self._dataset = replace(table, pattern=path_glob or "")
        return self


class PipelineData(Output):
    """A folder that a step writes.

    Parameters
    ----------
    name : str
        Its name in a run.
    datastore : Datastore, optional
        Its place is below ``azureml/<run>`` there. Default: in the job folder.
    output_overwrite : bool, optional
        Replace an output file that is there.
    **rest
        Without effect: a step writes its output in place.

    """

    def __init__(
        self,
        name: str,
        datastore: Datastore | None = None,
        output_name: str | None = None,
        output_mode: str = "mount",
        output_path_on_compute: str | None = None,
        output_overwrite: bool | None = None,
        **rest: Any,
    ) -> None:
        super().__init__(output_name or name, datastore, "azureml/{run-id}/{output-name}")
        self.overwrite = bool(output_overwrite)
