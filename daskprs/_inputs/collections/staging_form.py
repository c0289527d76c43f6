"""The announced kind of a collection's partitions, which staging follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from daskprs._inputs.frames.caller_frame import arrow_source_of_frame
from daskprs._inputs.source.batch_format import check_columns_fit, check_polars_holds
from daskprs._inputs.source.columns import check_columns
from daskprs._inputs.source.given_types import any_arrow_type_of, check_cast, given_type
from daskprs._inputs.source.read_options import check_options
from daskprs._inputs.source.sizes import MOST, Size, count_per_mini_batch, size_of_table
from daskprs.errors import OptionError

if TYPE_CHECKING:
    from daskprs._inputs.source.read_options import BatchFormat, ReadOptions

WHOLE = Size(MOST, "rows")
"""The size of a mini-batch that takes a whole partition."""


@dataclass(frozen=True)
class StagingForm:
    """The announced kind of partitions, and how they are cut; `staged` follows it."""

    kind: Literal["frame", "array", "objects", "bag"]
    size: Size = WHOLE
    """The size of a mini-batch; its rows are items where the partitions are objects."""
    meta: pd.DataFrame | None = None
    """The columns and types of every partition, if they are frames."""
    batch_format: BatchFormat = "pandas"
    keep_labels: bool = False
    given: frozenset[Any] = frozenset()
    """Columns whose types the option `dtypes` gives; the collection announces the others."""
    has_digest: bool = True
    """Whether a later run compares the rows."""


def form_of_frames(meta: pd.DataFrame, reading: ReadOptions) -> StagingForm:
    """Return the form of partitions that are frames like `meta`.

    Columns of `dtypes` have the types that are given. A category whose values only the partitions
    know is a column of objects, since each partition has values of its own.

    Raise `OptionError` for an option that does not fit, or columns that share a name, and
    `InputError` for a column that polars cannot hold.
    """
    check_options(reading, "frame")
    meta = meta.reset_index(drop=True)
    if not meta.columns.is_unique:
        msg = "data: the columns of a dask DataFrame must have different names."
        raise OptionError(msg)
    labels = [str(label) for label in meta.columns] if reading.as_arrow else list(meta.columns)
    check_columns_fit(reading.batch_format, labels)
    check_columns(list(reading.dtypes), list(meta.columns), "dtypes")
    given = {name: given_type(name, dtype) for name, dtype in reading.dtypes.items()}
    for name, dtype in given.items():
        if not _is_unknown(meta[name].dtype):
            check_cast(name, any_arrow_type_of(meta[name].dtype), dtype)
    unknown = dict.fromkeys(filter(lambda name: _is_unknown(meta[name].dtype), meta), object)
    meta = meta.astype(unknown | given)
    if reading.batch_format == "polars":
        check_polars_holds(arrow_source_of_frame(meta, WHOLE).schema, "polars")
    size = reading.mini_batch_size
    return StagingForm(
        "frame",
        WHOLE if size is None else size_of_table(size),
        meta,
        reading.batch_format,
        reading.keep_labels,
        frozenset(given),
    )


def _is_unknown(dtype: Any) -> bool:
    if not isinstance(dtype, pd.CategoricalDtype):
        return False
    from dask.dataframe.utils import UNKNOWN_CATEGORIES

    return UNKNOWN_CATEGORIES in dtype.categories


def form_of_arrays(reading: ReadOptions) -> StagingForm:
    """Return the form of partitions that are blocks of an array; an option may not fit."""
    check_options(reading, "array")
    size = reading.mini_batch_size
    return StagingForm("array", WHOLE if size is None else size_of_table(size))


def form_of_objects(reading: ReadOptions, *, is_bag: bool) -> StagingForm:
    """Return the form of partitions that may be anything; those of a Bag are iterables."""
    check_options(reading, "objects")
    size = reading.mini_batch_size
    count = WHOLE if size is None else Size(count_per_mini_batch(size, "items"), "rows")
    return StagingForm("bag" if is_bag else "objects", count)
