"""The workloads: what is measured, how large it is, and how its output is checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from benchmarks import checks, data
from benchmarks.data import DataSet
from benchmarks.frames import ROW_BYTES
from benchmarks.job import ON_CLUSTER
from benchmarks.results import LIMIT

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.checks import Measures
    from benchmarks.data import Expected

MB = 1 << 20
CLUSTERS = ("daskprs-cluster", "dask", "daft", "ray", "pyspark")
POOLS = ("multiprocessing", "joblib", "mpire", "dask-futures")
ROWS_OF_CSV = 13_000_000
"""About 1 GB of text."""


class Check(Protocol):
    """Raises `WrongOutputError`, or returns what an output says that no clock outside can see."""

    def __call__(self, output: Path, expected: Expected, *, ordered: bool) -> Measures:
        """Check one output."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One line of the table of results.

    Parameters
    ----------
    name
        In commands and results.
    title
        In the table; ``{count}`` is the number of rows, files, keys or partitions, and
        ``{processes}`` that of the processes.
    kind, run, size
        As in `benchmarks.job.Job`.
    data
        What is worked on.
    check
        Of the output.
    processes
        Default: one for each core.
    peers
        Who does it. Default: all who can; where others would take hours, the smaller one shows
        what they cost.
    limit_s
        What takes longer hangs. Default: the session's.
    reference
        The peer that ratios are to.

    """

    name: str
    title: str
    kind: str
    run: str
    size: int
    data: DataSet
    check: Check
    processes: int | None = None
    peers: tuple[str, ...] | None = None
    limit_s: float | None = None
    reference: str = LIMIT

    @property
    def on_cluster(self) -> bool:
        """Whether the clock begins when the cluster has started."""
        return self.kind in ON_CLUSTER


def _nothing(name: str, count: int, *peers: str) -> Workload:
    files = DataSet("nothing", data.empty_files, count, scaled=count > 1)
    title = "{count} mini-batches of nothing" if count > 1 else "one mini-batch of nothing"
    return Workload(
        name,
        title,
        "files",
        "benchmarks.work:nothing",
        1,
        files,
        checks.check_names,
        peers=peers or None,
    )


def _lazy(name: str, words: str, run: str, partitions: DataSet) -> Workload:
    return Workload(
        f"lazy-{name}",
        f"{{count}} partitions of a lazy frame, {words}; {{processes}} processes",
        "cluster_frame",
        f"benchmarks.work:{run}",
        0,
        partitions,
        checks.check_glances,
        peers=CLUSTERS,
        reference="dask",
    )


BUSY = DataSet("busy", data.busy_partitions, 48)
WAITING = DataSet("waiting", data.waiting_partitions, 48)
KEYS = DataSet("keys", data.unsorted_keys, 5_000, file="input.parquet")
PARQUET = DataSet("parquet", data.scored_parquet, 20_000_000, file="input.parquet")
SCORED = DataSet("scored", data.scored_parquet, 5_000_000, file="input.parquet")
CSV = DataSet("csv", data.scored_csv, ROWS_OF_CSV)
WORKLOADS = (
    _nothing("nothing-1", 1),
    _nothing("nothing-10k", 10_000),
    _nothing("nothing-100k", 100_000, "limit", "daskprs", *POOLS),
    _nothing("nothing-1m", 1_000_000, "limit", "daskprs"),
    Workload(
        "parquet-1mb",
        "score {count} rows of Parquet, 1 MB",
        "table",
        "benchmarks.work:score",
        MB,
        PARQUET,
        checks.check_scores,
    ),
    Workload(
        "parquet-10mb",
        "score {count} rows of Parquet, 10 MB",
        "table",
        "benchmarks.work:score",
        10 * MB,
        PARQUET,
        checks.check_scores,
    ),
    Workload(
        "csv",
        "score {count} rows of uneven CSV files, 1 MB",
        "table",
        "benchmarks.work:score",
        MB,
        CSV,
        checks.check_scores,
    ),
    Workload(
        "arrays",
        "{count} small array files, 10 a mini-batch",
        "files",
        "benchmarks.work:describe",
        10,
        DataSet("arrays", data.small_arrays, 20_000),
        checks.check_arrays,
    ),
    Workload(
        "keys",
        "a fit for each of {count} keys, unsorted",
        "keys",
        "benchmarks.work:fit",
        0,
        KEYS,
        checks.check_fits,
    ),
    Workload(
        "frame",
        "a frame of {count} rows in memory, 1 MB, from the frame to the last result",
        "frame",
        "benchmarks.work:glance",
        MB,
        DataSet("frame", data.no_input, round(1e9 / ROW_BYTES)),
        checks.check_glances,
    ),
    Workload(
        "pipeline",
        "decode, then infer: {count} rows of CSV, 1 MB, one process",
        "pipeline",
        "benchmarks.work:infer",
        MB,
        DataSet("pipeline", data.scored_csv, ROWS_OF_CSV // 10),
        checks.check_inferences,
        processes=1,
    ),
    Workload(
        "faults",
        "{count} mini-batches; 1 % raise, one dies, one hangs",
        "faults",
        "benchmarks.faulty:run",
        1,
        DataSet("faults", data.faulty_files, 10_000),
        checks.check_faults,
        limit_s=60,
    ),
    _lazy("300ms", "0.3 s each, 0.3 s in `run`", "glance_300ms", BUSY),
    _lazy("100ms", "0.3 s each, 0.1 s in `run`", "glance_100ms", BUSY),
    _lazy("cheap", "0.3 s each, a glance in `run`", "glance", BUSY),
    _lazy("waits", "0.3 s each, 0.3 s in `run`, all of it waiting", "wait_300ms", WAITING),
    Workload(
        "keys-cluster",
        "a fit for each of {count} keys, unsorted; {processes} processes",
        "cluster_keys",
        "benchmarks.work:fit",
        0,
        KEYS,
        checks.check_fits,
        peers=CLUSTERS,
        reference="dask",
    ),
    Workload(
        "dataset",
        "score {count} rows of Parquet into a data set; {processes} processes",
        "cluster_dataset",
        "benchmarks.work:score",
        10 * MB,
        SCORED,
        checks.check_dataset,
        peers=CLUSTERS,
        reference="dask",
    ),
    Workload(
        "groups",
        "score {count} rows of Parquet lazily, then sum by group; {processes} processes",
        "cluster_groups",
        "benchmarks.work:score",
        10 * MB,
        SCORED,
        checks.check_groups,
        peers=CLUSTERS,
        reference="dask",
    ),
)
BY_NAME = {workload.name: workload for workload in WORKLOADS}
