"""Loads every mini-batch of a table and puts them together, as an agent would see them."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from pathlib import Path

    from daskprs._inputs.source.source import TableSource


def together(source: TableSource, scratch: Path | None = None) -> pd.DataFrame:
    """Return all rows; each mini-batch has an index of its own and the types of the whole."""
    if scratch is not None:
        source.prepare(scratch)
    reader = pickle.loads(pickle.dumps(source.reader()))
    try:
        frames = [reader.load(mini_batch) for mini_batch in source.mini_batches()]
    finally:
        reader.close()
    for frame in frames:
        assert list(frame.index) == list(range(len(frame)))
        pd.testing.assert_series_equal(frame.dtypes, source.meta().dtypes)
    filled = [frame for frame in frames if len(frame)]
    return pd.concat(filled, ignore_index=True) if filled else source.meta()
