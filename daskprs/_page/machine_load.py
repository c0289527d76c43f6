"""The load of the machines of a job over time, from the tables below ``logs/perf``."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from daskprs._page.stamped_lines import seconds_of
from daskprs._page.working_time import BINS
from daskprs._report.usage_logs import TIME
from daskprs._system.regular_files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from daskprs._folders.job_folder import JobFolder
    from daskprs._page.working_time import WorkingTime

CPU, MEMORY, GPU = "Cpu Percent", "Memory Used Percent", "Gpu Percent"
GPU_USED, GPU_TOTAL = "Gpu Memory Used (MB)", "Gpu Memory Total (MB)"


class MachineLoad(NamedTuple):
    """Means over all nodes, in percent, for each part of the time; NaN where nothing is known."""

    cpu: np.ndarray
    memory: np.ndarray
    gpu: np.ndarray
    gpu_memory: np.ndarray

    @classmethod
    def of(cls, folder: JobFolder, work: WorkingTime) -> Self:
        """Read the tables of a job."""
        sums, counts = (np.zeros((len(cls._fields), BINS)) for _ in range(2))
        for path in sorted(folder.logs.glob("perf/*/node_resource_usage*.csv")):
            rows = np.array([*_rows(path)]).reshape(-1, 1 + len(cls._fields))
            part = np.searchsorted(work.edges, work.at(rows[:, 0])) - 1
            part = np.clip(part, 0, BINS - 1)
            for number, values in enumerate(rows[:, 1:].T):
                known = ~np.isnan(values)
                sums[number] += np.bincount(part[known], values[known], BINS)
                counts[number] += np.bincount(part[known], minlength=BINS)
        with np.errstate(invalid="ignore"):
            return cls(*(sums / counts))


def _rows(path: Path) -> Iterator[list[float]]:
    """Yield time and percentages of each row; the last may be half written."""
    with open_regular(path) as file:
        lines = (line.decode(errors="replace") for line in file if line.endswith(b"\n"))
        for row in csv.DictReader(lines):
            shares = (_number(row.get(name)) for name in (CPU, MEMORY, GPU))
            used, total = (_number(row.get(name)) for name in (GPU_USED, GPU_TOTAL))
            yield [seconds_of(row[TIME]), *shares, 100 * used / (total or np.nan)]


def _number(cell: str | None) -> float:
    return float(cell) if cell else np.nan
