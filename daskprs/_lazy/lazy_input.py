"""The data of a lazy collection: its partitions, or what is known of it before a job runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import dask
import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
from dask import delayed
from dask.base import tokenize
from dask.core import flatten

from daskprs._inputs.collections.collection_graph import blocks_of_rows, kind_of, stable_name
from daskprs._inputs.collections.opening import announced_frame, form_of
from daskprs._inputs.collections.partition_graph import is_future
from daskprs._inputs.open_source import open_source
from daskprs.errors import InputError, class_name

if TYPE_CHECKING:
    from dask.typing import Key

    from daskprs._inputs.collections.staging_form import StagingForm
    from daskprs._inputs.source.source import Unit
    from daskprs._options.run_options import RunOptions

MOST_PARTS = 1000
"""Maximum number of partitions of a result whose data has none."""
FRAMES = ("DataFrame", "Series", "Table", "RecordBatch")
"""Classes of frames that can be read again."""


class InputPartitions(NamedTuple):
    """The partitions of an input."""

    collection: Any
    """A dask DataFrame, Bag or Array, or a list of Delayed objects."""
    form: StagingForm
    unit: Unit
    numbers_rows: bool = False
    """Whether a task knows the numbers of rows in all data: not without the other partitions."""

    def meta(self) -> pd.DataFrame | None:
        """Return the frame without rows that is announced; None where no frame is."""
        return self.form.meta

    @property
    def keys(self) -> list[Key]:
        """The keys of the partitions, in order."""
        if isinstance(self.collection, list):
            return [one.key for one in self.collection]
        return list(flatten(self.collection.__dask_keys__()))

    @property
    def token(self) -> str:
        """A text that is the same in each process for a collection made in the same way."""
        if isinstance(self.collection, dd.DataFrame):
            return str(tokenize(stable_name(self.collection.expr), len(self.keys)))
        return str(tokenize(self.keys))


def partitions_of(data: Any, options: RunOptions) -> InputPartitions:
    """Return the partitions of a collection, or of a frame that is cut into mini-batches."""
    reading = replace(options.reading(), batch_format=options.batch_format)
    frame = _frame_of(data, as_arrow=reading.as_arrow)
    if frame is not None:
        size_bytes = int(frame.memory_usage(deep=True).sum())
        with dask.config.set({"dataframe.convert-string": False}):
            rows = reading.size.rows_of(max(1, len(frame)), max(len(frame), size_bytes))
            data = dd.from_pandas(frame.reset_index(drop=True), chunksize=rows, sort=False)
        reading = replace(reading, mini_batch_size=None)
    kind, meta = kind_of(data), None
    match kind:
        case "frame":
            data = data.to_frame() if isinstance(data, dd.Series) else data
            meta = data._meta  # noqa: SLF001 - Dask's name for it
        case "array":
            data = blocks_of_rows(data)
        case "delayed":
            items = list(data) if isinstance(data, (list, tuple)) else [data]
            data = [delayed(one) for one in items]
            if reading.meta is not None:
                kind, meta = "frame", announced_frame(reading)
                reading = replace(reading, meta=None)
    form, unit = form_of(kind, meta, reading)
    return InputPartitions(data, replace(form, has_digest=False), unit)


def _frame_of(data: Any, *, as_arrow: bool) -> pd.DataFrame | None:
    """Return the frame of pandas that a frame of the caller is; None for a collection."""
    if isinstance(data, (pd.DataFrame, pd.Series)):
        return data.to_frame() if isinstance(data, pd.Series) else data
    if type(data).__module__.partition(".")[0] == "polars" and hasattr(data, "to_arrow"):
        data = pa.table(data.to_frame() if hasattr(data, "to_frame") else data)
    if isinstance(data, pa.Table):
        frame: pd.DataFrame = data.to_pandas(types_mapper=pd.ArrowDtype if as_arrow else None)
        return frame
    if _is_collection(data):
        return None
    msg = (
        f"data: a {class_name(type(data))} has no partitions that tasks of Dask could run. Give a "
        "frame or a collection, such as dask.dataframe.read_parquet(path), or leave out "
        "committed=False."
    )
    raise InputError(msg)


def partition_count(data: Any, options: RunOptions) -> tuple[int, bool, str]:
    """Return the number of partitions of the result of a job, after every check that costs little.

    Return also whether these are partitions of the data, and a token of the data.
    """
    if _is_collection(data):
        parts = partitions_of(data, options.replace(partition_keys=None))
        return len(parts.keys), True, parts.token
    reading = replace(options.reading(), batch_format=options.batch_format)
    if _is_read_once(data):
        msg = (
            f"data: a {class_name(type(data))} is read once, and a lazy collection may be computed "
            "again. Make a table of it, or write it to a file."
        )
        raise InputError(msg)
    source = open_source(data, reading)
    files = [file.identity for file in source.files()]
    count = min(MOST_PARTS, max(1, source.count() or MOST_PARTS))
    token = tokenize(type(source).__name__, files) if files else tokenize(data)
    return count, False, token


def _is_read_once(data: Any) -> bool:
    """Return whether data is a stream, or is computed when it is read."""
    package, name = type(data).__module__.partition(".")[0], type(data).__name__
    is_frame = package in ("pandas", "polars", "pyarrow") and name in FRAMES
    return not is_frame and (hasattr(data, "__arrow_c_stream__") or name == "LazyFrame")


def holds_delayed(data: Any) -> bool:
    """Return whether data is Delayed objects or futures, whose frames only `meta` announces."""
    return _is_collection(data) and kind_of(data) == "delayed"


def _is_collection(data: Any) -> bool:
    """Return whether the data has partitions that Dask computes."""
    items = data if isinstance(data, (list, tuple)) and data else [data]
    return all(hasattr(one, "__dask_graph__") or is_future(one) for one in items)
