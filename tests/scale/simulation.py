"""A job on many simulated nodes: ``simulation.py FOLDER NODES SLOTS_EACH SECONDS MINI_BATCHES``.

Everything is real but the agents, which only let time pass: the driver, and Dask's scheduler and
workers, all in this one process. Prints what came of it as JSON: the share of the time in which
the slots were at work, how much memory the process grew by, and how many tasks the scheduler held
at most.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask
import pandas as pd
import psutil
from distributed import Client, LocalCluster

import daskprs
from daskprs._cluster import session, worker_plugin
from tests.support import simulated_agents
from tests.support.simulated_agents import ROW, SimulatedPool, Work

if TYPE_CHECKING:
    from collections.abc import Iterator

SAMPLE_EVERY_S = 0.05
SETTINGS = {
    "distributed.admin.tick.limit": "1h",
    "distributed.admin.low-level-log-length": 10,
    # What each worker does beside its work it does a hundred times in this one process.
    "distributed.admin.tick.interval": "5s",
    "distributed.admin.system-monitor.interval": "60s",
    "distributed.worker.profile.enabled": False,
}


class Watch(threading.Thread):
    """Looks at memory and at the scheduler while the job runs."""

    def __init__(self, cluster: LocalCluster) -> None:
        super().__init__(daemon=True)
        self._scheduler = cluster.scheduler
        self._process = psutil.Process()
        self._over = threading.Event()
        self.before = self.most = self._process.memory_info().rss
        self.tasks = 0

    def run(self) -> None:
        """Look again and again."""
        while not self._over.wait(SAMPLE_EVERY_S):
            self.most = max(self.most, self._process.memory_info().rss)
            self.tasks = max(self.tasks, len(self._scheduler.tasks))

    def end(self) -> None:
        """Look no more."""
        self._over.set()
        self.join()


@contextmanager
def nodes(count: int, slots_each: int) -> Iterator[LocalCluster]:
    """Yield a cluster of workers in this process, each of which says that it is on its own host."""
    plugin: Any = worker_plugin
    leases: Any = session
    leases.run_lease = simulated_agents.run_lease
    plugin.AgentPool = SimulatedPool
    plugin.get_address_host = lambda address: f"host{address.rpartition('/')[2]}"
    with (
        dask.config.set(SETTINGS),
        LocalCluster(
            processes=False,
            n_workers=count,
            threads_per_worker=slots_each,
            memory_limit=0,
            scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
            worker_dashboard_address="127.0.0.1:0",
        ) as cluster,
    ):
        yield cluster


def simulate(
    folder: Path, cluster: LocalCluster, slots: int, seconds: float, count: int
) -> dict[str, Any]:
    """Run one job, and say how it went."""
    import zlib

    simulated_agents.CHECKSUM = zlib.crc32(ROW)
    Work.begin(seconds)
    rows = pd.DataFrame({"n": range(count)})
    with Client(cluster, set_as_default=False) as client:
        watch = Watch(cluster)
        watch.start()
        begun = time.monotonic()
        result = daskprs.parallel_run(
            rows,
            _never_called,
            client=client,
            mini_batch_size=1,
            job_dir=folder / "job",
            output_dir=folder / "out",
            progress=False,
        )
        wall_s = time.monotonic() - begun
        watch.end()
    assert result.output_file is not None
    assert result.output_file.stat().st_size == count * len(ROW)
    assert result.mini_batches.succeeded == count
    return {
        "slots": slots,
        "mini_batches": count,
        "seconds": seconds,
        "wall_s": round(wall_s, 2),
        "busy": round(Work.busy(slots), 3) if seconds else None,
        "per_second": round(count / (Work.ended_s - (Work.begun_s or 0.0))),
        "grown_mb": round((watch.most - watch.before) / 1e6),
        "tasks_at_most": watch.tasks,
    }


def _never_called(mini_batch: Any) -> Any:
    return mini_batch


if __name__ == "__main__":
    base, count_of_nodes, slots_of_each, of_each, in_all = sys.argv[1:]
    with nodes(int(count_of_nodes), int(slots_of_each)) as of_many:
        slots_of_all = int(count_of_nodes) * int(slots_of_each)
        told = simulate(Path(base), of_many, slots_of_all, float(of_each), int(in_all))
    print(json.dumps(told))
