"""A table of keys, read whole and sorted: how a hand-written program brings keys together."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterator


def sorted_by_key(path: str) -> tuple[pd.DataFrame, list[tuple[int, int]]]:
    """Return the rows in the order of their keys, and where each key begins and ends."""
    table = pq.read_table(path)
    order = np.argsort(table["key"].to_numpy(), kind="stable")
    rows = pd.DataFrame({name: table[name].to_numpy()[order] for name in table.column_names})
    changes = np.flatnonzero(np.diff(rows["key"].to_numpy())) + 1
    edges = [0, *changes.tolist(), len(rows)]
    return rows, list(pairwise(edges))


def by_key(path: str) -> Iterator[pd.DataFrame]:
    """Yield the rows of each key, for those who ship them."""
    rows, bounds = sorted_by_key(path)
    return (rows.iloc[begin:end] for begin, end in bounds)
