"""A lazy frame: each partition takes time when a peer computes it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from benchmarks.work import FEATURES, GLANCE_COLUMNS, busy, waiting

if TYPE_CHECKING:
    from benchmarks.job import Job

SEED = 11
PARTITION_ROWS = 250_000
"""16 MB."""


@dataclass(frozen=True, slots=True)
class LazyFrame:
    """The description of a lazy frame, which is the input of a peer.

    Parameters
    ----------
    count
        The number of partitions.
    busy_s
        The processor time that computing a partition takes.
    waiting_s
        The time that computing a partition takes at least; the processor may be idle.

    """

    count: int
    busy_s: float = 0.0
    waiting_s: float = 0.0

    @classmethod
    def of(cls, job: Job) -> LazyFrame:
        """Read the description from the input of a job."""
        return cls(**json.loads(Path(job.input).read_text()))

    def save(self, path: Path) -> None:
        """Write the description to a file."""
        path.write_text(json.dumps(asdict(self)))


def partition(number: int, busy_s: float, waiting_s: float) -> pd.DataFrame:
    """Compute a partition of ids and features."""
    with waiting(waiting_s), busy(busy_s):
        features = np.random.default_rng([SEED, number]).random((len(FEATURES), PARTITION_ROWS))
        frame = pd.DataFrame(features.T, columns=list(FEATURES), copy=False)
        first = number * PARTITION_ROWS
        frame.insert(0, "id", np.arange(first, first + PARTITION_ROWS))
        return frame


def empty_partition() -> pd.DataFrame:
    """Return the columns of a partition, without rows."""
    types = {"id": "int64", **dict.fromkeys(FEATURES, "float64")}
    return pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in types.items()})


def empty_result() -> pd.DataFrame:
    """Return the columns of `benchmarks.work.glance`, without rows."""
    types = dict(zip(GLANCE_COLUMNS, ("int64", "int64", "float64"), strict=True))
    return pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in types.items()})
