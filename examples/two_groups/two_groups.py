"""Two groups of workers in one cluster: some have a GPU, and the others decode for them.

Each worker has an address of its own on this machine, so that daskprs takes it for a node. The
first one declares a GPU, which need not be there: the script uses none. From the root of the
project:

    python examples/two_groups/two_groups.py

On real machines, the cluster does this. The workers of GPU nodes have their cards, or are started
with `--resources "GPU=1"`, and the call of daskprs is the same.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pandas as pd
from distributed import Client, Nanny, Scheduler, SpecCluster

import daskprs

TEXTS = 2_000
WORDS = ("gradient ", "tensor ", "kernel ", "batch ")
LOCAL = {"dashboard_address": "127.0.0.1:0"}
NO_CARD = {"CUDA_VISIBLE_DEVICES": "-1"}
"""Else the workers of this machine would all see its card, if it has one."""


def two_groups(worker: Any = Nanny) -> SpecCluster:
    """Return a cluster of a node with a GPU, and of two nodes without one."""
    gpu = {"nthreads": 1, "resources": {"GPU": 1}, "host": "127.0.0.1"}
    workers = {"gpu-0": {"cls": worker, "options": {**gpu, **LOCAL}}}
    for number in range(2):
        cpu = {"nthreads": 2, "host": f"127.0.0.{2 + number}", **LOCAL}
        if worker is Nanny:
            cpu["env"] = NO_CARD
        workers[f"cpu-{number}"] = {"cls": worker, "options": cpu}
    scheduler = {"cls": Scheduler, "options": {"host": "127.0.0.1", **LOCAL}}
    return SpecCluster(workers, scheduler)


def embedded(client: Client, count: int = TEXTS) -> pd.DataFrame:
    """Return a row for each text."""
    texts = [zlib.compress((word * 200_000).encode()) for word in WORDS]
    result = daskprs.parallel_run(
        pd.DataFrame({"text": [texts[n % len(texts)] for n in range(count)]}),
        Path(__file__).with_name("embed.py"),
        mini_batch_size="20 rows",
        preprocess="decode",
        postprocess="rows",
        gpus_per_process=1,  # the script uses a GPU, which daskprs would find out by itself
        client=client,
        progress=False,
    )
    return result.to_pandas(ignore_index=True)


def main() -> None:
    """Embed the texts, and show which nodes have decoded them."""
    with two_groups() as cluster, Client(cluster) as client:
        client.wait_for_workers(len(cluster.worker_spec))
        rows = embedded(client)
    print(rows.head(3).to_string())
    print("\nTexts by the node that has decoded them; node numbers are those of the logs:")
    print(rows["decoded on"].value_counts().sort_index().to_string())


if __name__ == "__main__":
    main()
