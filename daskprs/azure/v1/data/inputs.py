"""The inputs of a step: datasets, outputs of other steps, and arguments that name them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from daskprs.azure.v1.config.parameter import PipelineParameter, settled
from daskprs.azure.v1.data.consumption import DatasetConsumptionConfig
from daskprs.azure.v1.data.data_reference import DataReference
from daskprs.azure.v1.data.dataset import AbstractDataset, FileDataset, TabularDataset, places_of
from daskprs.azure.v1.data.datastore import DataPath
from daskprs.azure.v1.data.outputs import Output, OutputDataset
from daskprs.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

INPUTS = (
    "a dataset, dataset.as_named_input('…'), an output of another step, a path, or a "
    "pandas DataFrame"
)

FRAMES = ("pandas.core.frame.DataFrame", "pandas.DataFrame")


def name_of(given: Any, number: int) -> str:
    """Return the name of an input."""
    if isinstance(given, OutputDataset):
        return given.output.name
    return getattr(given, "name", None) or f"input_{number}"


def source_of(given: Any, parameters: Mapping[str, Any]) -> Any:
    """Return the dataset or output behind an input; None when the value is not an input."""
    while True:
        match given:
            case DatasetConsumptionConfig() | DataReference():
                given = given.dataset
            case PipelineParameter():
                given = settled(given, parameters)
            case Output():
                return given.as_dataset()
            case AbstractDataset() | OutputDataset():
                return given
            case DataPath() | str() | os.PathLike():
                return FileDataset(places_of(given), {"input_type": "files"})
            case _ if _is_frame(given):
                return TabularDataset(given, {})
            case _:
                return None


def _is_frame(given: Any) -> bool:
    """Say whether something is a pandas DataFrame, without importing pandas for it."""
    return any(f"{one.__module__}.{one.__name__}" in FRAMES for one in type(given).__mro__)


def dataset_of(given: Any, parameters: Mapping[str, Any]) -> AbstractDataset:
    """Return the dataset that an input stands for.

    Raises
    ------
    OptionError
        When the input does not stand for a dataset.
    UsageError
        When no step has written the dataset.

    """
    found = source_of(given, parameters)
    if isinstance(found, OutputDataset):
        return found.located()
    if found is None:
        msg = f"inputs: {given!r} is none of what a step works on: {INPUTS}."
        raise OptionError(msg)
    located: AbstractDataset = found
    return located


def is_table(given: Any, parameters: Mapping[str, Any]) -> bool:
    """Say whether an input is a table, which need not exist yet."""
    found = source_of(given, parameters)
    if isinstance(found, OutputDataset):
        return found.reading is not None
    return isinstance(found, TabularDataset)


def joined(datasets: Sequence[AbstractDataset]) -> AbstractDataset:
    """Return several inputs of a step as one; no mini-batch mixes folders or globs of them.

    Raises
    ------
    OptionError
        When they are not read in the same way.

    """
    first = datasets[0]
    for other in datasets[1:]:
        if type(other) is not type(first) or other.reading != first.reading:
            msg = (
                "inputs: several datasets have to be of one kind, and read in the same way: "
                f"{first!r} and {other!r} are not."
            )
            raise OptionError(msg)
    if len(datasets) == 1:
        return first
    if not all(isinstance(one.data, list) for one in datasets):
        msg = "inputs: a table in memory can be the only input. Put frames together before."
        raise OptionError(msg)
    paths = [path for one in datasets for path in one.data]
    return type(first)(paths, first.reading, first.partition_keys)


def outputs_in(values: Sequence[Any]) -> Iterator[Output]:
    """Yield the outputs that inputs and arguments stand for."""
    for value in values:
        found = source_of(value, {})
        if isinstance(found, OutputDataset):
            yield found.output


def parameters_in(values: Sequence[Any]) -> Iterator[PipelineParameter]:
    """Yield the pipeline parameters that inputs and arguments stand for."""
    for value in values:
        one = value
        while isinstance(one, DatasetConsumptionConfig):
            one = one.dataset
        if isinstance(one, PipelineParameter):
            yield one


def root_of(given: Any, parameters: Mapping[str, Any]) -> str:
    """Return the path by which a script finds an input.

    Raises
    ------
    OptionError
        When it is a table, which scripts do not find by a path.

    """
    dataset = dataset_of(given, parameters)
    if not isinstance(dataset, FileDataset):
        msg = f"{given!r} is a table: only files can be a side input, or an argument."
        raise OptionError(msg)
    return dataset.root()


def words_of(
    arguments: Sequence[Any], parameters: Mapping[str, Any], *, with_tables: bool = False
) -> list[str]:
    """Return arguments as text, with the paths of data in them (for tables, the names).

    Raises
    ------
    OptionError
        For what is neither text, a number, a path nor a name of data.

    """
    return [_word(one, parameters, with_tables=with_tables) for one in arguments]


def _word(one: Any, parameters: Mapping[str, Any], *, with_tables: bool) -> str:
    value = settled(one, parameters)
    if isinstance(value, Output) and value.place is not None:
        return str(value.place)
    if isinstance(value, str | int | float | os.PathLike):
        return str(value)
    if source_of(value, parameters) is None:
        msg = f"arguments: {one!r} is neither text, a number, a path nor an input or output."
        raise OptionError(msg)
    if with_tables and is_table(value, parameters):
        return name_of(value, 0)
    return root_of(value, parameters)
