"""What is done with one mini-batch: the same functions for all peers.

Heavy modules are imported where they are used: what does nothing pays for none of them.
"""

from __future__ import annotations

import hashlib
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

FEATURES = tuple(f"x{number}" for number in range(7))
WEIGHTS = (0.8, -0.5, 0.3, 0.1, -0.9, 0.4, 0.2)
SCORE_COLUMNS = ("id", "score")
FIT_COLUMNS = ("key", "rows", "a", "b", "c")
GLANCE_COLUMNS = ("first", "rows", "total")
GROUP_COLUMNS = ("group", "total")
GROUPS = 1009
"""Into which rows are put by their id."""
INFERENCE_COLUMNS = ("first", "rows", "begin", "end")
INFERENCE_S = 0.02
BLOCK = bytes(1 << 18)
"""Hashing this many bytes releases the GIL, as numerical libraries do."""


def nothing(paths: list[str]) -> list[str]:
    """Return the names of the files, unread."""
    return [path.rpartition("/")[2] for path in paths]


def describe(paths: list[str]) -> list[str]:
    """Return a line for each small array: its name and its largest singular value."""
    import numpy as np

    return [
        f"{path.rpartition('/')[2]} {np.linalg.svd(np.load(path), compute_uv=False)[0]:.6f}"
        for path in paths
    ]


def score(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the chance that a logistic regression gives each row."""
    import numpy as np
    import pandas as pd

    logits = rows[list(FEATURES)].to_numpy(dtype=float) @ np.array(WEIGHTS)
    return pd.DataFrame({"id": rows["id"].to_numpy(), "score": 1 / (1 + np.exp(-logits))})


def fit(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the least squares coefficients for the rows of one key."""
    import numpy as np
    import pandas as pd

    features = rows[["x0", "x1", "x2"]].to_numpy(dtype=float)
    a, b, c = np.linalg.lstsq(features, rows["y"].to_numpy(dtype=float), rcond=None)[0]
    values = (int(rows["key"].iloc[0]), len(rows), a, b, c)
    return pd.DataFrame([values], columns=list(FIT_COLUMNS))


def glance(rows: pd.DataFrame) -> pd.DataFrame:
    """Return what costs next to nothing: the first id, the number of rows, one sum."""
    import pandas as pd

    values = (int(rows["id"].iloc[0]), len(rows), float(rows["x0"].sum()))
    return pd.DataFrame([values], columns=list(GLANCE_COLUMNS))


def glance_100ms(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a glance that takes 0.1 s of processor time."""
    with busy(0.1):
        return glance(rows)


def glance_300ms(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a glance that takes 0.3 s of processor time."""
    with busy(0.3):
        return glance(rows)


def wait_300ms(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a glance that takes 0.3 s, in which the processor is idle, as for a service."""
    with waiting(0.3):
        return glance(rows)


@contextmanager
def busy(seconds: float) -> Iterator[None]:
    """Make a block take an amount of processor time in this thread."""
    end = time.thread_time() + seconds
    yield
    while time.thread_time() < end:
        hashlib.sha256(BLOCK)


@contextmanager
def waiting(seconds: float) -> Iterator[None]:
    """Make a block take an amount of time, in which the processor may be idle."""
    end = time.monotonic() + seconds
    yield
    time.sleep(max(0.0, end - time.monotonic()))


def infer(rows: pd.DataFrame) -> pd.DataFrame:
    """Return when a device was busy with the rows; the processor only waits for it."""
    import pandas as pd

    begin = time.monotonic()
    time.sleep(INFERENCE_S)
    values = (int(rows["id"].iloc[0]), len(rows), begin, time.monotonic())
    return pd.DataFrame([values], columns=list(INFERENCE_COLUMNS))
