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


class MachineLoad(NamedTuple):
    """Means over all nodes, in percent, for each part of the time; NaN where nothing is known."""

    cpu: np.ndarray
    memory: np.ndarray
    gpu: np.ndarray

    @classmethod
    def of(cls, folder: JobFolder, work: WorkingTime) -> Self:
        """Read the tables of a job."""
        times: list[float] = []
        values: list[list[float]] = []
        for path in sorted(folder.logs.glob("perf/*/node_resource_usage*.csv")):
            for row in _rows(path):
                times.append(row[0])
                values.append(row[1:])
        if not times:
            return cls(*(np.full(BINS, np.nan) for _ in cls._fields))
        part = np.searchsorted(work.edges, work.at(np.array(times))) - 1
        part = np.clip(part, 0, BINS - 1)
        return cls(*(_means(part, column) for column in np.array(values).T))


def _means(part: np.ndarray, values: np.ndarray) -> np.ndarray:
    known = ~np.isnan(values)
    sums = np.bincount(part[known], values[known], BINS)
    counts = np.bincount(part[known], minlength=BINS)
    with np.errstate(invalid="ignore"):
        means: np.ndarray = sums / counts
    return means


def _rows(path: Path) -> Iterator[list[float]]:
    """Yield time and percentages of each row; the last may be half written."""
    with open_regular(path) as file:
        lines = (line.decode(errors="replace") for line in file if line.endswith(b"\n"))
        for row in csv.DictReader(lines):
            yield [seconds_of(row[TIME]), *(_number(row.get(name)) for name in (CPU, MEMORY, GPU))]


def _number(cell: str | None) -> float:
    return float(cell) if cell else np.nan
