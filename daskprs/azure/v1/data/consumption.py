"""`DatasetConsumptionConfig`: a dataset as an input of a step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, eq=False)
class DatasetConsumptionConfig:
    """A dataset by the name that a step knows it by.

    Parameters
    ----------
    name : str
        The name; of a side input, scripts find it by ``EntryScript().side_inputs`` too.
    dataset : FileDataset, TabularDataset or PipelineParameter
        The data, or a parameter that stands for it.
    mode : str
        Data is read in place, whatever it says. A script step finds a dataset by its name where it
        is ``"direct"``, and the path of the files where it is another.
    path_on_compute : str, optional
        A path at which a script expects it. An absolute one of a side input is a link to the data
        while the step runs, unless something is there.

    """

    name: str
    dataset: Any
    mode: str = "direct"
    path_on_compute: str | None = None

    def as_mount(self, path_on_compute: str | None = None) -> DatasetConsumptionConfig:
        """Return it with a path at which a script expects it."""
        return replace(self, mode="mount", path_on_compute=path_on_compute)

    def as_download(self, path_on_compute: str | None = None) -> DatasetConsumptionConfig:
        """Return the same as `as_mount`: data is read in place."""
        return replace(self, mode="download", path_on_compute=path_on_compute)

    def as_hdfs(self) -> DatasetConsumptionConfig:
        """Return it: data is read in place."""
        return replace(self, mode="hdfs")

    def as_direct(self) -> DatasetConsumptionConfig:
        """Return it: data is read in place."""
        return replace(self, mode="direct")
