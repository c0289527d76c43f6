"""Score pictures on the nodes of a batch system: ``python score.py slurm|pbs FOLDER``.

FOLDER is on a file system that all nodes see; ``examples/digits/make_data.py`` fills it. Needs
``dask-jobqueue``. To be run on a login node, or inside a batch job of its own (`caller.sh`).
"""

from __future__ import annotations

import sys
from pathlib import Path

from dask_jobqueue import JobQueueCluster, PBSCluster, SLURMCluster
from distributed import Client

import daskprs

HOURS = 2
NODES = 2
SLOTS = 4
"""Agent processes on a node: one for each thread that its Dask worker declares."""
EVERYWHERE = {
    "cores": SLOTS,
    "processes": 1,
    "memory": "8GB",
    "walltime": f"{HOURS:02d}:00:00",
    # A worker leaves before the batch system ends it, and hands back what it has not finished;
    # not all of them at the same time.
    "worker_extra_args": ["--lifetime", f"{HOURS * 60 - 5}m", "--lifetime-stagger", "4m"],
    "scheduler_options": {"dashboard": False, "dashboard_address": "127.0.0.1:0"},
}
SCRIPT = Path(__file__).parents[2] / "examples" / "digits" / "score.py"


def cluster_of(system: str) -> JobQueueCluster:
    """Return a cluster whose workers are batch jobs; add your queue, account and devices here."""
    match system:
        case "slurm":
            return SLURMCluster(job_extra_directives=["--requeue"], **EVERYWHERE)
        case "pbs":
            return PBSCluster(resource_spec=f"select=1:ncpus={SLOTS}:mem=8GB", **EVERYWHERE)
    sys.exit(f"{system}: slurm or pbs")


def main(system: str, folder: Path) -> None:
    """Run the job; called again with the same folder, it goes on where it was."""
    with cluster_of(system) as cluster, Client(cluster) as client:
        # Jobs that the system ends are asked for anew.
        cluster.adapt(minimum_jobs=1, maximum_jobs=NODES)
        result = daskprs.parallel_run(
            folder / "images",
            SCRIPT,
            client=client,
            mini_batch_size=25,
            arguments=["--model", str(folder / "model.pickle")],
            job_dir=folder / "job",
            output_dir=folder / "output",
            resume=True,
        )
    print(result)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]).absolute())
