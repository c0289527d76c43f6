"""`OutputDataset`: what a step will have written, as a dataset of a later one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daskprs.azure.v1.column_types import delimited_reading, dtypes_of, refuse_types_of_parquet
from daskprs.azure.v1.consumption import DatasetConsumptionConfig
from daskprs.azure.v1.dataset import AbstractDataset, FileDataset, TabularDataset
from daskprs.errors import UsageError
from daskprs.inputs.partition_format import PartitionFormat

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daskprs.azure.v1.outputs import Output


class OutputDataset:
    """What a step will have written, as a dataset of a later one.

    Parameters
    ----------
    output
        The output.
    reading
        By which it is a table; None: files.
    pattern
        What its files match, below the folder of the output; nothing: all of them.

    """

    def __init__(
        self, output: Output, reading: Mapping[str, Any] | None = None, pattern: str = ""
    ) -> None:
        self.output = output
        self.reading = reading
        self.pattern = pattern

    @property
    def name(self) -> str:
        """That of the output."""
        return self.output.name

    def located(self) -> AbstractDataset:
        """Return it as the dataset that it is, now that it is there.

        Raises
        ------
        UsageError
            When no step has written it.

        """
        if self.output.place is None:
            msg = (
                f"{self.output!r} is an input, and no step has written it: run the step whose "
                "output it is before, or both in one Pipeline."
            )
            raise UsageError(msg)
        place = [str(self.output.place / self.pattern)]
        if self.reading is not None:
            return TabularDataset(place, {"input_type": "table", **self.reading})
        form = self.output.partition_format
        keys = () if form is None else PartitionFormat(form).names
        return FileDataset(place, {"input_type": "files", "partition_format": form}, keys)

    def register(self, name: str, **_: Any) -> OutputDataset:
        """Return it as one that is a dataset of the workspace when it was written."""
        self.output.registered_as = name
        return self

    def as_named_input(self, name: str) -> DatasetConsumptionConfig:
        """Return it as an input of a step."""
        return DatasetConsumptionConfig(name, self)

    def as_mount(self, path_on_compute: str | None = None) -> DatasetConsumptionConfig:
        """Return it as an input of a step, read in place."""
        return self.as_named_input(self.output.name).as_mount(path_on_compute)

    def as_download(self, path_on_compute: str | None = None) -> DatasetConsumptionConfig:
        """Return it as an input of a step, read in place."""
        return self.as_named_input(self.output.name).as_download(path_on_compute)

    def as_direct(self) -> DatasetConsumptionConfig:
        """Return it as an input of a step, read in place."""
        return self.as_named_input(self.output.name)

    def parse_delimited_files(
        self,
        include_path: bool = False,  # noqa: FBT001, FBT002 - the original's signature
        separator: str = ",",
        header: Any = True,  # noqa: FBT002 - the same
        partition_format: str | None = None,
        file_extension: str | None = None,
        set_column_types: Mapping[str, Any] | None = None,
        quoted_line_breaks: bool = False,  # noqa: FBT001, FBT002 - the same
    ) -> OutputDataset:
        """Return it, or its files with an extension, as a table of delimited text."""
        reading = {
            **delimited_reading(separator, header, "utf8", include_path=include_path),
            "partition_format": partition_format,
            "support_multi_line": quoted_line_breaks,
            "dtypes": dtypes_of(set_column_types) or None,
        }
        return OutputDataset(self.output, reading, _pattern(file_extension))

    def parse_parquet_files(
        self,
        include_path: bool = False,  # noqa: FBT001, FBT002 - the same
        partition_format: str | None = None,
        file_extension: str | None = None,
        set_column_types: Mapping[str, Any] | None = None,
    ) -> OutputDataset:
        """Return it, or its files with an extension, as a table of Parquet, which has types."""
        refuse_types_of_parquet(set_column_types)
        reading = {"include_path_column": include_path, "partition_format": partition_format}
        return OutputDataset(self.output, reading, _pattern(file_extension))


def _pattern(file_extension: str | None) -> str:
    """Return what files with an extension match."""
    return f"**/*{file_extension}" if file_extension else ""
