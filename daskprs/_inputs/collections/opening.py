"""From Dask collections, and lists of delayed values and futures, to sources."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from daskprs._inputs.collections.collection_graph import collection_graph
from daskprs._inputs.collections.source import CollectionSource
from daskprs._inputs.collections.staging_form import (
    WHOLE,
    form_of_arrays,
    form_of_frames,
    form_of_objects,
)
from daskprs._inputs.files.discover import discover
from daskprs._inputs.files.file_list import FileList
from daskprs._inputs.files.source import FilesSource
from daskprs._inputs.source.columns import check_columns
from daskprs._inputs.source.given_types import pandas_type
from daskprs._inputs.source.read_options import check_options
from daskprs.errors import InputError, Option, OptionError

if TYPE_CHECKING:
    from daskprs._inputs.collections.collection_graph import Kind
    from daskprs._inputs.collections.staging_form import StagingForm
    from daskprs._inputs.source.read_options import ReadOptions
    from daskprs._inputs.source.source import Source, Unit


def open_collection(data: Any, reading: ReadOptions) -> Source:
    """Return the source of a Dask collection, or of a list of delayed values or futures.

    A Bag of paths is file input: its partitions are computed here, all at once.
    """
    if type(data).__name__ == "Bag" and _holds_paths(data):
        check_options(reading, "bag")
        return _open_paths(data, reading)
    collection = collection_graph(data, reading.columns)
    if collection.kind == "delayed" and reading.meta is not None:
        collection = collection._replace(kind="frame", meta=announced_frame(reading))
        reading = replace(reading, meta=None)
    form, unit = form_of(collection.kind, collection.meta, reading)
    if reading.partition_keys and collection.kind == "frame":
        check_columns(reading.partition_keys, list(collection.meta.columns), "partition_keys")
        form = replace(form, size=WHOLE)
    return CollectionSource(collection, form, unit)


def form_of(kind: Kind, meta: Any, reading: ReadOptions) -> tuple[StagingForm, Unit]:
    """Return the form and the unit of a collection's partitions; an option may not fit."""
    match kind:
        case "frame":
            return form_of_frames(meta, reading), "row"
        case "array":
            return form_of_arrays(reading), "row"
        case _:
            return form_of_objects(reading, is_bag=kind == "bag"), "item"


def announced_frame(reading: ReadOptions) -> pd.DataFrame:
    """Return a frame without rows, with the columns of `meta`."""
    if reading.columns is not None:
        given = Option("columns", reading.columns)
        raise OptionError(given, ": not for Delayed objects and futures. Select them in the tasks.")
    types = {name: pandas_type(name, kind, "meta") for name, kind in (reading.meta or {}).items()}
    return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in types.items()})


def _holds_paths(bag: Any) -> bool:
    """Compute partitions of a Bag until one has an item, and say whether that is a path."""
    for number, partition in enumerate(bag.to_delayed()):
        for item in _computed([partition], number)[0]:
            return isinstance(item, (str, os.PathLike))
    return True


def _open_paths(bag: Any, reading: ReadOptions) -> FilesSource:
    partitions = list(map(list, _computed(bag.to_delayed())))
    for path in (path for partition in partitions for path in partition):
        if not isinstance(path, (str, os.PathLike)):
            msg = (
                f"data: the Bag holds paths and {path!r}. Items of a Bag are all paths, and then "
                "it is file input, or none is."
            )
            raise InputError(msg)
    inputs = [
        FileList(file for path in partition for one in discover([path]) for file in one)
        for partition in partitions
        if partition
    ]
    if reading.mini_batch_size is None and not reading.partition_keys:
        return FilesSource(
            inputs, replace(reading, mini_batch_size=max(map(len, inputs), default=1))
        )
    return FilesSource([FileList(file for partition in inputs for file in partition)], reading)


def _computed(partitions: list[Any], first: int = 0) -> tuple[Any, ...]:
    """Return some partitions of a Bag, by the scheduler that Dask uses for it."""
    import dask

    try:
        values: tuple[Any, ...] = dask.compute(*partitions)
    except Exception as error:  # whatever the user's tasks raise
        which = f"partition {first}" if len(partitions) == 1 else "a partition"
        msg = (
            f"data: {which} of the Bag cannot be computed: {type(error).__name__}: {error}. "
            "Compute it alone to see why: .to_delayed()[…].compute()."
        )
        raise InputError(msg) from error
    return values
