"""Frames as Arrow tables that give back the very same frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from daskprs.arrow.arrow_pandas import ToPandas, without_rows


def exact_table(frame: pd.DataFrame) -> tuple[pa.Table, ToPandas] | None:
    """Return a frame as Arrow, and what makes the frame of it; None if Arrow would change it.

    The index is left out, and the columns are numbered.
    """
    if type(frame) is not pd.DataFrame or frame.columns.empty:
        return None
    if any(isinstance(dtype, np.dtype) and dtype.kind == "O" for dtype in frame.dtypes):
        return None
    try:
        table = exactly(frame)
        to_pandas = ToPandas(without_rows(table), labels=frame.columns)
        back = to_pandas.frame(table.slice(0, 1))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
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


def _is_same(dtype: Any, other: Any) -> bool:
    if isinstance(dtype, pd.CategoricalDtype) and isinstance(other, pd.CategoricalDtype):
        return dtype.ordered == other.ordered and dtype.categories.identical(other.categories)
    return bool(dtype == other)
