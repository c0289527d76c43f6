"""The inputs of a step: datasets, outputs of other steps, and arguments that name them."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskprs.azure.v1.absent import Known
from daskprs.azure.v1.dataset import (
    AbstractDataset,
    DatasetConsumptionConfig,
    FileDataset,
    TabularDataset,
    places_of,
)
from daskprs.azure.v1.datastore import DataPath
from daskprs.azure.v1.outputs import Output, OutputDataset
from daskprs.azure.v1.parameter import PipelineParameter, settled
from daskprs.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from daskprs.azure.v1.datastore import Datastore

INPUTS = (
    "a dataset, dataset.as_named_input('…'), an output of another step, a path, or a "
    "pandas DataFrame"
)
FRAMES = ("pandas.core.frame.DataFrame", "pandas.DataFrame")


class DataReference(Known):
    """A path on a datastore as an input of a step.

    Parameters
    ----------
    datastore : Datastore
        The datastore.
    data_reference_name : str, optional
        The name of the input.
    path_on_datastore : str, optional
        The path.
    **rest
        Without effect: data is read in place.

    """

    def __init__(
        self,
        datastore: Datastore,
        data_reference_name: str | None = None,
        path_on_datastore: str | None = None,
        **rest: Any,
    ) -> None:
        self.name = data_reference_name or datastore.name
        place = datastore.place(path_on_datastore or "")
        self.dataset = FileDataset([place], {"input_type": "files"})

    def as_mount(self) -> DataReference:
        """Return this reference: data is read, or written, in place."""
        return self

    as_download = as_upload = as_mount


def name_of(given: Any, number: int) -> str:
    """Return the name of an input."""
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
    """Say whether a value is a pandas DataFrame, without importing pandas."""
    return any(f"{one.__module__}.{one.__name__}" in FRAMES for one in type(given).__mro__)


def dataset_of(given: Any, parameters: Mapping[str, Any]) -> AbstractDataset:
    """Return the dataset that an input stands for; a step must have written it."""
    found = source_of(given, parameters)
    if isinstance(found, OutputDataset):
        return found.located()
    if found is None:
        msg = f"inputs: {given!r} is not {INPUTS}."
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
    """Return several inputs of a step as one; no mini-batch mixes folders or globs of them."""
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
    sources = (source_of(value, {}) for value in values)
    return (one.output for one in sources if isinstance(one, OutputDataset))


def parameters_in(values: Sequence[Any]) -> Iterator[PipelineParameter]:
    """Yield the pipeline parameters that inputs and arguments stand for."""
    for value in values:
        one = value
        while isinstance(one, DatasetConsumptionConfig):
            one = one.dataset
        if isinstance(one, PipelineParameter):
            yield one


def root_of(given: Any, parameters: Mapping[str, Any]) -> str:
    """Return the path by which a script finds an input, which must not be a table."""
    dataset = dataset_of(given, parameters)
    if not isinstance(dataset, FileDataset):
        msg = f"{given!r} is a table: only files can be a side input, or an argument."
        raise OptionError(msg)
    return dataset.root()


def record_of(given: Any, parameters: Mapping[str, Any]) -> Any:
    """Return an input as a script finds it by its name: a record of a dataset, or a path of files.

    It is None for a table in memory.
    """
    dataset = dataset_of(given, parameters)
    is_read = isinstance(dataset, TabularDataset) or (
        getattr(given, "mode", "") == "direct" and isinstance(given.dataset, AbstractDataset)
    )
    return dataset.record() if is_read else root_of(given, parameters)


def words_of(
    arguments: Sequence[Any], parameters: Mapping[str, Any], *, with_tables: bool = False
) -> list[str]:
    """Return arguments as text, with the paths of data in them (for tables, the names)."""
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


@contextmanager
def mounted(places: Mapping[str, str]) -> Iterator[None]:
    """Create links at the paths where scripts expect their side inputs, for a block."""
    with ExitStack() as links:
        for path, place in places.items():
            link = Path(path)
            if link.resolve() == Path(place).resolve():
                continue
            try:
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(Path(place).absolute())
            except OSError as error:
                msg = (
                    f"as_mount({path!r}): the link to {place} cannot be made: {error}. Leave the "
                    "path out, and pass the input to the script as an argument."
                )
                raise OptionError(msg) from error
            links.callback(link.unlink, missing_ok=True)
        yield
