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
    features = np.empty((len(FEATURES), rows))
    for feature in features:
        random.random(out=feature)
    frame = pd.DataFrame(features.T, columns=list(FEATURES), copy=False)  # or it would peak here
    frame.insert(0, "id", np.arange(rows))
    return frame


def expected_total(rows: int) -> float:
    """Return the sum of the first feature."""
    return float(np.random.default_rng(SEED).random(rows).sum())
