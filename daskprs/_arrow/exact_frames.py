"""Frames as Arrow tables that give back the very same frames."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from daskprs._arrow.arrow_pandas import (
    NO_NOTES,
    THREADS_BYTES,
    ToPandas,
    note,
    with_notes,
    without_rows,
)
from daskprs._arrow.exact_casts import MISFITS
from daskprs._arrow.sizes import size_bytes
from daskprs.errors import LoadError


def exact_table(frame: pd.DataFrame) -> tuple[pa.Table, ToPandas] | None:
    """Return a frame as Arrow, and what makes the frame of it; None if Arrow would change it.

    The index is left out, and the columns are numbered.
    """
    if type(frame) is not pd.DataFrame or frame.columns.empty:
        return None
    if any(map(_has_objects, frame.dtypes)):
        return None
    try:
        table = exactly(frame).unify_dictionaries()
        to_pandas = ToPandas(without_rows(table), labels=frame.columns)
        back = to_pandas.frame(table.slice(0, 1))
    except (*NO_ARROW, LoadError):
        return None
    return (table, to_pandas) if all(map(_is_same, back.dtypes, frame.dtypes)) else None


def exactly(frame: pd.DataFrame) -> pa.Table:
    """Return a frame as Arrow, its columns numbered; a NaN stays a NaN, and is not null."""
    numbered = frame.copy(deep=False)
    numbered.columns = pd.Index([str(place) for place in range(frame.shape[1])])
    numbered.attrs = {}
    numbers = {
        name: pa.array(numbered[name].to_numpy(), from_pandas=False)  # without a look for NaN
        for name, dtype in numbered.dtypes.items()
        if isinstance(dtype, np.dtype) and dtype.kind in "iufb"
    }
    rest = pa.Table.from_pandas(numbered.drop(columns=list(numbers)), preserve_index=False)
    columns = [numbers[name] if name in numbers else rest.column(name) for name in numbered]
    return pa.table(columns, names=list(numbered), metadata=rest.schema.metadata)


def _has_objects(dtype: Any) -> bool:
    """Say whether a type has Python's objects, of which Arrow may make others that equal them."""
    if isinstance(dtype, pd.CategoricalDtype):
        dtype = dtype.categories.dtype
    return isinstance(dtype, np.dtype) and dtype.kind == "O"


def _is_same(dtype: Any, other: Any) -> bool:
    if isinstance(dtype, pd.CategoricalDtype) and isinstance(other, pd.CategoricalDtype):
        return dtype.ordered == other.ordered and dtype.categories.identical(other.categories)
    return bool(dtype == other)


# ---- with labels, for frames that are kept by the thousand ----


def labelled_table(frame: pd.DataFrame) -> pa.Table | None:
    """Return a frame as Arrow with its labels as names; None if Arrow would change the frame.

    The labels have to be different strings, or the numbers from 0. The index is left out, and
    `frame_of_labelled` returns the rest. What depends on types and labels alone is worked out
    once, since most frames are small. A frame without rows is none: it would lose its categories.
    """
    if type(frame) is not pd.DataFrame or frame.attrs or frame.empty:
        return None
    # As Series, the columns would take twenty times as long.
    columns: list[Any] = list(frame._iter_column_arrays())  # type: ignore[operator] # noqa: SLF001
    dtypes = [one.dtype for one in columns]
    if any(isinstance(one, np.dtype) and one.kind not in ARROW_KINDS for one in dtypes):
        return None
    dtypes = [CATEGORY if isinstance(one, pd.CategoricalDtype) else one for one in dtypes]
    try:
        names, metadata = _form(_Labels.of(frame.columns), tuple(dtypes)) or ((), None)
        if not names:
            return None
        return pa.Table.from_arrays([*map(_array, columns)], names=names, metadata=metadata)
    except NO_ARROW:
        return None


def frame_of_labelled(table: pa.Table) -> pd.DataFrame:
    """Return the frame that `labelled_table` made a table of, with an index from 0."""
    frame: pd.DataFrame = table.to_pandas(use_threads=size_bytes(table) > THREADS_BYTES)
    is_range = RANGE.items() <= (table.schema.metadata or {}).items()
    names = table.column_names
    frame.columns = pd.RangeIndex(len(names)) if is_range else pd.Index(names)
    return frame


ARROW_KINDS = "iufbmM"
"""The kinds of NumPy types that Arrow may hold."""
CATEGORY = "category"
"""Stands for all categorical types: Arrow writes their categories with the rows."""
RANGE = {b"labels": b"range"}
"""Metadata of a table whose names are the numbers from 0, as text."""
NO_ARROW = (*MISFITS, NotImplementedError)
"""Errors for what Arrow would change; pandas does not implement the names of some types."""


class _Labels(NamedTuple):
    """The labels of a frame, and what else tells one index of pandas from another."""

    kind: type
    dtype: Any
    name: Any
    labels: tuple[Any, ...]

    @classmethod
    def of(cls, index: pd.Index) -> _Labels:
        return cls(type(index), index.dtype, index.name, tuple(index))

    def names(self) -> tuple[str, ...]:
        """Return the names of columns; none if the same labels would not come back of them."""
        if self.name is None and self.kind is pd.RangeIndex:
            numbers = tuple(range(len(self.labels)))
            return tuple(map(str, numbers)) if self.labels == numbers else ()
        are_names = self.name is None and self.kind is pd.Index
        if not are_names or not all(isinstance(label, str) for label in self.labels):
            return ()
        is_exact = pd.Index(self.labels).dtype == self.dtype
        return self.labels if is_exact and len(set(self.labels)) == len(self.labels) else ()


@lru_cache(maxsize=256)
def _form(
    labels: _Labels, dtypes: tuple[Any, ...]
) -> tuple[tuple[str, ...], dict[bytes, bytes]] | None:
    """Return names and metadata of a table that gives back such labels and types, if any does."""
    names = labels.names()
    notes = []
    for name, dtype in zip(names, dtypes, strict=False):
        noted = _noted(dtype)
        if noted is None:
            return None
        if noted:
            notes.append(note(name, noted))
    metadata = dict(RANGE) if labels.kind is pd.RangeIndex else {}
    if notes:
        metadata |= with_notes(pa.schema([]), NO_NOTES | {"columns": notes}).metadata
    return (names, metadata) if names else None


@lru_cache(maxsize=256)
def _noted(dtype: Any) -> str | None:
    """Return how pandas notes a type that Arrow gives back; None if it does not.

    The note is empty if Arrow gives back the type without one.
    """
    if isinstance(dtype, str):
        return ""
    empty = pd.Series([], dtype=dtype)
    try:
        table = pa.table({"x": _array(empty.array)})
        if isinstance(table.schema.types[0], pa.BaseExtensionType):
            return None  # a process that has not made it itself may not know it
        if table.to_pandas()["x"].dtype == dtype:
            return ""
        notes = NO_NOTES | {"columns": [note("x", dtype)]}
        noted = table.cast(with_notes(table.schema, notes))
        return str(dtype) if noted.to_pandas()["x"].dtype == dtype else None
    except NO_ARROW:
        return None


def _array(values: Any) -> pa.Array | pa.ChunkedArray:
    """Return a column as Arrow; a NaN stays a NaN, and is not null."""
    if isinstance(values, pd.Categorical):
        categories = values.categories
        if not (type(categories) is pd.Index and _are_exact(categories.dtype)):
            msg = "Arrow gives back other categories"
            raise TypeError(msg)
    return pa.array(values, from_pandas=isinstance(values, pd.Categorical))


@lru_cache(maxsize=256)
def _are_exact(dtype: Any) -> bool:
    """Say whether Arrow gives back an index of categories with this type."""
    if isinstance(dtype, np.dtype) and dtype.kind not in ARROW_KINDS:
        return False
    given = pd.CategoricalDtype(pd.Index(pd.array([], dtype=dtype)))
    made = pa.array(pd.Categorical([], dtype=given))
    return _is_same(made.to_pandas().dtype, given)
