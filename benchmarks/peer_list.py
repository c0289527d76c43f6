"""Who takes part, and what each needs to be there."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.job import ON_CLUSTER

ROOT = Path(__file__).parents[1]
HOME = ROOT / ".bench"
ENVIRONMENTS = HOME / "environments"
ALL_KINDS = ("files", "table", "keys", "frame", "faults")
WITH_CLUSTER = (*ALL_KINDS, *ON_CLUSTER)
WITH_PIPELINE = (*ALL_KINDS, "pipeline")
TABLES = ("numpy", "pandas", "pyarrow")
DASK = ("dask[dataframe]", "distributed", *TABLES)


@dataclass(frozen=True, slots=True)
class Peer:
    """One way of doing the work.

    Parameters
    ----------
    name
        In commands and results.
    module
        Below `benchmarks.peers`.
    environment
        Its virtual environment; none for those that run in the environment of daskprs.
    requires
        What is installed there.
    kinds
        The kinds of work it has a function for.
    program
        What has to be on the machine, besides.
    ordered
        Whether its output is promised to be in the order of the input.

    """

    name: str
    module: str
    environment: str | None = None
    requires: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ALL_KINDS
    program: str | None = None
    ordered: bool = False

    @property
    def home(self) -> Path:
        """The folder of its environment."""
        return ENVIRONMENTS / (self.environment or "none")

    @property
    def python(self) -> Path:
        """The interpreter that runs it."""
        return self.home / "bin" / "python" if self.environment else Path(sys.executable)

    @property
    def ready(self) -> Path:
        """Is there once its environment is whole."""
        return self.home / "ready"

    @property
    def failure(self) -> Path:
        """Says why its environment could not be made."""
        return self.home / "failure.txt"

    def missing(self) -> str | None:
        """Return why it cannot take part, or None."""
        if self.program and shutil.which(self.program) is None:
            return f"{self.program} is not on this machine"
        if self.environment and not self.ready.exists():
            return self.failure.read_text() if self.failure.exists() else "not installed"
        return None

    def versions(self) -> dict[str, str]:
        """Return the versions of Python and of what it requires."""
        names = [name.partition("[")[0] for name in self.requires or (*TABLES, "dask")]
        code = (
            "import sys, json, platform; from importlib.metadata import version; "
            "print(json.dumps({'python': platform.python_version(), "
            "**{name: version(name) for name in sys.argv[1:]}}))"
        )
        command = [str(self.python), "-c", code, *names]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        versions: dict[str, str] = json.loads(told)
        return versions


PEERS = (
    Peer("limit", "limit", kinds=WITH_PIPELINE),
    Peer("daskprs", "daskprs", kinds=WITH_PIPELINE, ordered=True),
    Peer(
        "daskprs-cluster",
        "daskprs_cluster",
        kinds=("files", "table", "keys", *ON_CLUSTER),
        ordered=True,
    ),
    Peer("multiprocessing", "multiprocessing", kinds=WITH_PIPELINE, ordered=True),
    Peer("joblib", "joblib", "joblib", ("joblib", *TABLES), ordered=True),
    Peer("mpire", "mpire", "mpire", ("mpire", *TABLES), ordered=True),
    Peer("dask", "dask_collections", "dask", DASK, WITH_CLUSTER),
    Peer(
        "dask-futures",
        "dask_futures",
        "dask",
        DASK,
        ("files", "table", "frame", "faults"),
    ),
    Peer("ray", "ray", "ray", ("ray[data]", *TABLES), WITH_CLUSTER),
    Peer("pyspark", "pyspark", "pyspark", ("pyspark", *TABLES), WITH_CLUSTER, program="java"),
    Peer("daft", "daft", "daft", ("daft", *TABLES), WITH_CLUSTER),
)
BY_NAME = {peer.name: peer for peer in PEERS}
