"""Datasets: paths, and how they are read."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, cast

from daskprs._inputs.files.discover import discover
from daskprs._inputs.open_source import open_source
from daskprs._inputs.source.columns import check_columns
from daskprs._inputs.source.input_file import is_url
from daskprs._options.run_options import RunOptions
from daskprs._suggest import WILDCARDS
from daskprs.azure.v1.absent import Known
from daskprs.azure.v1.datastore import DataPath, Datastore
from daskprs.errors import InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pandas as pd

    from daskprs._inputs.source.source import Source, TableSource
    from daskprs.azure.v1.workspace import Workspace


def places_of(path: Any) -> list[str]:
    """Return the places of data: paths, `DataPath`s, datastores with a path on it, or a list."""
    match path:
        case DataPath():
            return [path.place]
        case (Datastore() as datastore, str() as below):
            return [datastore.place(below)]
        case str() | os.PathLike():
            return [os.fspath(path)]
        case Sequence():
            return [place for one in path for place in places_of(one)]
    msg = (
        f"path: {path!r} is not a path, datastore.path('…'), (datastore, 'path'), or a list of "
        "these."
    )
    raise InputError(msg)


@dataclass(frozen=True, eq=False)
class DatasetConsumptionConfig(Known):
    """A dataset as an input of a step, by a name.

    Parameters
    ----------
    name : str
        The name; scripts also find a side input by it, in ``EntryScript().side_inputs``.
    dataset : FileDataset, TabularDataset or PipelineParameter
        The data, or a parameter that stands for it.
    mode : str
        Data is read in place in every mode. With ``"direct"``, a script step finds a dataset by its
        name; with other modes, the path of its files.
    path_on_compute : str, optional
        The path at which a script expects the data. An absolute path of a side input is a link to
        the data while the step runs; a path that exists is refused, unless it leads to the data.

    """

    name: str
    dataset: Any
    mode: str = "direct"
    path_on_compute: str | None = None

    def as_mount(self, path_on_compute: str | None = None) -> DatasetConsumptionConfig:
        """Return this input with a path at which a script expects it."""
        return replace(self, mode="mount", path_on_compute=path_on_compute)

    def as_download(self, path_on_compute: str | None = None) -> DatasetConsumptionConfig:
        """Return the same as `as_mount`: data is read in place."""
        return replace(self, mode="download", path_on_compute=path_on_compute)

    def as_hdfs(self) -> DatasetConsumptionConfig:
        """Return this input in another mode: data is read in place."""
        return replace(self, mode="hdfs")


class AbstractDataset(Known):
    """The input of `daskprs.parallel_run`, and the options for reading it."""

    unit = ""
    version = 1

    def __init__(
        self, data: Any, reading: Mapping[str, Any], partition_keys: Sequence[str] = ()
    ) -> None:
        self.data = data
        self.reading = {name: value for name, value in reading.items() if value is not None}
        self.partition_keys = list(partition_keys)
        self.name: str | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.data!r}, {self.reading!r})"

    def register(
        self, workspace: Workspace, name: str, description: str | None = None, **_: Any
    ) -> Self:
        """Register the dataset by name; a frame in memory only while the workspace object lives."""
        self.name = name
        workspace.keep_dataset(name, self)
        return self

    def record(self) -> dict[str, Any] | None:
        """Return the JSON values for `dataset_of_record`; None for a frame in memory."""
        if not isinstance(self.data, list):
            return None
        data = [one if is_url(one) else os.path.abspath(one) for one in self.data]  # noqa: PTH100
        record = {"unit": self.unit, "name": self.name, "data": data, "reading": self.reading}
        return {**record, "partition_keys": self.partition_keys}

    def as_named_input(self, name: str) -> DatasetConsumptionConfig:
        """Return the dataset as an input of a step."""
        return DatasetConsumptionConfig(name, self)

    def _cut(self, choose: Callable[[range], Iterable[Iterable[int]]]) -> list[Self]:
        """Return datasets of the files or rows that are chosen among the positions of all."""
        raise NotImplementedError

    def take(self, count: int) -> Self:
        """Return the first files, or the first rows, in memory."""
        return self._cut(lambda every: [every[:count]])[0]

    def skip(self, count: int) -> Self:
        """Return all but the first files, or all but the first rows, in memory."""
        return self._cut(lambda every: [every[count:]])[0]

    def take_sample(self, probability: float, seed: int | None = None) -> Self:
        """Return a random part of the files or rows, each with this probability."""
        return self.random_split(probability, seed)[0]

    def random_split(self, percentage: float, seed: int | None = None) -> tuple[Self, Self]:
        """Return two random parts, of which the first has about this share of files or rows."""

        def chosen(every: range) -> Iterator[list[int]]:
            draw = random.Random(seed).random  # noqa: S311 - it keeps no secret
            first = {one for one in every if draw() < percentage}
            yield sorted(first)
            yield [one for one in every if one not in first]

        first, second = self._cut(chosen)
        return first, second

    def get_partition_key_values(
        self, partition_keys: Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """Return the combinations of values that exist, each as a dict."""
        keys = tuple(partition_keys or self.partition_keys)
        with _opened(self, partition_keys=keys) as source:
            return [dict(one.partition_key) for one in source.mini_batches()]


class FileDataset(AbstractDataset):
    """Files: `run` gets lists of their paths."""

    unit = "file"
    below: Mapping[str, str] = MappingProxyType({})
    """The paths of files below those of the dataset that they are a part of."""

    def as_mount(self, path_on_compute: str | None = None) -> DatasetConsumptionConfig:
        """Return the dataset as an input of a step, read in place."""
        return self.as_named_input(self.name or "input").as_mount(path_on_compute)

    def as_download(self, path_on_compute: str | None = None) -> DatasetConsumptionConfig:
        """Return the dataset as an input of a step, read in place."""
        return self.as_named_input(self.name or "input").as_download(path_on_compute)

    def as_hdfs(self) -> DatasetConsumptionConfig:
        """Return the dataset as an input of a step, read in place."""
        return self.as_named_input(self.name or "input").as_hdfs()

    def to_path(self) -> list[str]:
        """Return the paths of the files below the named paths, each with a leading slash."""
        return [f"/{relative or Path(path).name}" for path, relative in self._files()]

    def download(
        self, target_path: str | os.PathLike[str] | None = None, overwrite: bool = False, **_: Any
    ) -> list[str]:
        """Copy its files into a folder, and return their paths there."""
        root = Path(tempfile.mkdtemp() if target_path is None else target_path).absolute()
        copied = []
        for path, relative in self._files():
            target = root / (relative or Path(path).name)
            if target.exists() and not overwrite:
                msg = f"{target} exists. Download with overwrite=True."
                raise UsageError(msg)
            target.parent.mkdir(parents=True, exist_ok=True)
            copied.append(str(shutil.copy2(path, target)))
        return copied

    def root(self) -> str:
        """Return the single path by which a script finds all files; refuse several paths."""
        if len(self.data) != 1:
            msg = (
                "a script gets one path for a dataset, and this dataset has several. Make a "
                "dataset of the folder above them."
            )
            raise InputError(msg)
        path = self.data[0] if is_url(self.data[0]) else str(Path(self.data[0]).absolute())
        is_fixed = WILDCARDS.isdisjoint
        return "/".join(takewhile(is_fixed, path.split("/"))) or "/"

    def _cut(self, choose: Callable[[range], Iterable[Iterable[int]]]) -> list[Self]:
        files = [*self._files()]
        made = []
        for part in choose(range(len(files))):
            chosen = [files[at] for at in part]
            made.append(type(self)([path for path, _ in chosen], self.reading, self.partition_keys))
            made[-1].below = dict(chosen)
        return made

    def record(self) -> dict[str, Any] | None:
        """Return the JSON values for `dataset_of_record`."""
        record = super().record()
        if record is not None and self.below:
            record["below"] = dict(zip(record["data"], map(self.below.get, self.data), strict=True))
        return record

    def _files(self) -> Iterator[tuple[str, str]]:
        for files in discover(self.data):
            for one in files:
                relative = one.relative.removeprefix("./")  # as ** has it in its first folder
                yield one.path, self.below.get(one.path, relative)


class TabularDataset(AbstractDataset):
    """A table: `run` gets frames."""

    unit = "row"

    def to_pandas_dataframe(self, **_: Any) -> pd.DataFrame:
        """Return all rows, with the types that `run` gets."""
        from daskprs.azure._mltable.whole_table import whole_table  # it imports pandas

        return whole_table(self.data, RunOptions(**self.reading).reading())

    def columns_of_files(self) -> list[str]:
        """Return the names of the columns that are in the files."""
        names, of_paths = self._columns()
        return [name for name in names if name not in of_paths]

    def _columns(self) -> tuple[list[str], list[str]]:
        """Return the names of all columns but ``Path``, and of those with values from paths."""
        with _opened(self) as source:
            table = cast("TableSource", source)
            names = list(table.meta().columns)
            first = 1 if self.reading.get("include_path_column") else 0
            return names[first:], [*table.path_names]

    def _cut(self, choose: Callable[[range], Iterable[Iterable[int]]]) -> list[Self]:
        frame = self.to_pandas_dataframe()
        parts = (frame.iloc[[*one]] for one in choose(range(len(frame))))
        return [type(self)(one.reset_index(drop=True), {}) for one in parts]

    def keep_columns(self, columns: Sequence[str] | str) -> TabularDataset:
        """Return the table with these columns only."""
        names = [columns] if isinstance(columns, str) else list(columns)
        return TabularDataset(self.data, {**self.reading, "columns": names}, self.partition_keys)

    def drop_columns(self, columns: Sequence[str] | str) -> TabularDataset:
        """Return the table without these columns of its files."""
        dropped = {columns} if isinstance(columns, str) else {*columns}
        names, of_paths = self._columns()
        return self.keep_columns([one for one in names if one not in dropped or one in of_paths])

    def partition_by(
        self,
        partition_keys: Sequence[str],
        target: Any = None,
        name: str | None = None,
        show_progress: bool = True,
        partition_as_file_dataset: bool = False,
    ) -> TabularDataset:
        """Return this table partitioned by columns, and register it by name.

        The keys are the last columns, in their order, as if the parts were in folders of these
        names. Nothing is written to the target: a step brings the rows of a key together when it
        runs. The target is a datastore, or a datastore with a path on it, and its workspace
        registers the name.

        Raises
        ------
        UsageError
            With `partition_as_file_dataset`, since the parts have no files; for a key that is not a
            column.

        """
        keys = [partition_keys] if isinstance(partition_keys, str) else list(partition_keys)
        if partition_as_file_dataset:
            msg = (
                "partition_as_file_dataset: the parts are not written as files here. Use "
                "partition_keys of ParallelRunConfig, and run() gets each part as a frame."
            )
            raise UsageError(msg)
        names, _ = self._columns()
        check_columns(keys, names, "partition_keys")
        ordered = [*(one for one in names if one not in keys), *keys]
        one = TabularDataset(self.data, {**self.reading, "columns": ordered}, keys)
        one.name = name
        datastore = target[0] if isinstance(target, tuple) else target
        if name is not None and isinstance(datastore, Datastore) and datastore.workspace:
            one.register(datastore.workspace, name)
        return one


def dataset_of_record(record: Any) -> Any:
    """Return the dataset that a record describes; a path is itself."""
    if isinstance(record, str):
        return record
    kind = TabularDataset if record["unit"] == TabularDataset.unit else FileDataset
    dataset = kind(record["data"], record["reading"], record["partition_keys"])
    dataset.name = record["name"]
    if isinstance(dataset, FileDataset):
        dataset.below = record.get("below", {})
    return dataset


@contextmanager
def _opened(dataset: AbstractDataset, **more: Any) -> Iterator[Source]:
    """Open a dataset for a block, with a temporary folder for its files."""
    reading = RunOptions(**dataset.reading, **more).reading()
    source = open_source(dataset.data, reading)
    with tempfile.TemporaryDirectory(prefix="daskprs-dataset-") as folder:
        source.prepare(Path(folder))
        yield source
