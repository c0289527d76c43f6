"""A frame that the caller holds: made in the process, from a fixed seed, before the clock runs."""

from __future__ import annotations

import numpy as np
import pandas as pd

from benchmarks.work import FEATURES

SEED = 7
ROW_BYTES = 8 * (1 + len(FEATURES))


def make_frame(rows: int) -> pd.DataFrame:
    """Return a frame of ids and features."""
    random = np.random.default_rng(SEED)
    columns = {"id": np.arange(rows), **{name: random.random(rows) for name in FEATURES}}
    return pd.DataFrame(columns)


def expected_total(rows: int) -> float:
    """Return the sum of the first feature."""
    return float(np.random.default_rng(SEED).random(rows).sum())
