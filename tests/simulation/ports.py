"""What modules of daskprs find in place of Dask, of processes and of the file system."""

from __future__ import annotations

import os
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

# Modules that jobs load when they need them have to be there before their clocks are replaced.
import daskprs._cluster.key_exchange
import daskprs._cluster.part_writers
import daskprs._cluster.partition_feed
import daskprs._output.dataset.earlier_parts
import daskprs._output.dataset.ordered_parts
import daskprs._output.failures.failed_table  # noqa: F401
from daskprs._core.usage import NodeUsage
from tests.simulation.client import wait
from tests.simulation.endpoints import LOOK_EVERY_S
from tests.simulation.far import site_of
from tests.simulation.keys import Asyncio, KeyHelper, OnHost
from tests.simulation.partitions import Staging
from tests.simulation.parts import Helper, in_folder
from tests.simulation.pool import Pool
from tests.simulation.stages import File, Holder, Wakes
from tests.simulation.standard import replaced
from tests.simulation.world import now

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

    from tests.simulation.cluster import Cluster, Worker
    from tests.simulation.disk import Disk

TICK_S = 1.0
"""Between two turns of a driver without news: a quarter of those of production, to save time."""
TELL_EVERY_MS = 1000
"""Between two heartbeats of a worker: half as many as in production, for the same reason."""
LOGS_EVERY_S = 5.0
"""Between two looks at the logs of far nodes: there are none here."""
PIECE_BYTES = 40
"""Bytes of a result that are fetched at a time."""


class Stage(Protocol):
    """Where a job is played."""

    cluster: Cluster
    disk: Disk
    rng: random.Random


_stages: list[Stage] = []


@contextmanager
def on(stage: Stage) -> Iterator[None]:
    """Let the job within the block be played on a stage."""
    _stages.append(stage)
    try:
        yield
    finally:
        _stages.pop()


def _this_worker() -> Worker:
    return _stages[-1].cluster.this_worker()


def _uniform(least: float, most: float) -> float:
    return _stages[-1].rng.uniform(least, most)


def _leave_the_threads() -> None:
    _stages[-1].cluster.leave_the_threads()


def _rejoin() -> None:
    _stages[-1].cluster.rejoin()


def _exchanged(one: Path, other: Path) -> bool:
    return _stages[-1].disk.exchange(one, other)


@contextmanager
def simulated() -> Iterator[None]:
    """Let the modules of daskprs find simulated things; seeds are played within the block."""
    worker, lease = "daskprs._cluster.worker_plugin", "daskprs._cluster.lease"
    nodes = "daskprs._cluster.remote.nodes"
    exchange, dealer = "daskprs._cluster.key_exchange", "daskprs._cluster.key_worker"
    shuffle = "daskprs._inputs.keys.shuffle"
    supervision = "daskprs._agent.supervision"
    writers, parts = "daskprs._cluster.part_writers", "daskprs._cluster.part_worker"
    more = {
        (worker, "AgentPool"): Pool,
        ("daskprs._driver.inline_slots", "AgentPool"): Pool,
        ("daskprs._driver.inline_slots", "InlineStarter"): lambda *_: None,
        (worker, "WorkerSite"): site_of,
        (worker, "PeriodicCallback"): _Periodic,
        (worker, "TELL_EVERY_MS"): TELL_EVERY_MS,
        (worker, "LOOK_EVERY_S"): LOOK_EVERY_S,
        (worker, "random"): SimpleNamespace(uniform=_uniform),
        ("daskprs._agent.inline.governing_thread", "LOOK_EVERY_S"): LOOK_EVERY_S,
        ("daskprs._driver.dispatch", "TICK_S"): TICK_S,
        (worker, "worker_ends_in_s"): _ends_in_s,
        (worker, "visible_devices"): lambda: (),
        (worker, "usable_cores"): lambda: 4,
        (worker, "get_address_host"): _host,
        (worker, "NodeMonitor"): _Monitor,
        ("daskprs._cluster.scheduler_plugin", "show_figures"): lambda _: None,
        (worker, "drop_threads_that_never_began"): lambda _: None,
        ("daskprs._cluster.worker_registry", "get_address_host"): _host,
        (lease, "get_worker"): _this_worker,
        (lease, "leave_the_threads"): _leave_the_threads,
        # Agents of other processes than the driver's do not end with it.
        ("daskprs._driver.dispatch", "close_pools"): lambda _: None,
        ("daskprs._driver.dispatch", "gc"): SimpleNamespace(
            get_freeze_count=lambda: 0, freeze=lambda: None, unfreeze=lambda: None
        ),
        ("daskprs._output.publish.output_file", "exchanged"): _exchanged,
        (writers, "get_address_host"): _host,
        (writers, "SMALL_BYTES"): 0,
        ("daskprs._cluster.partition_feed", "submit_group"): Staging.submit_group,
        (nodes, "THIS_PROCESS"): "the driver",
        (nodes, "LOGS_EVERY_S"): LOGS_EVERY_S,
        (nodes, "CARRIED_BYTES"): 0,
        (f"{supervision}.pool", "IN_MESSAGE_BYTES"): 0,
        (f"{supervision}.stage_run", "StageFile"): File,
        (f"{supervision}.stage_workers", "os"): Wakes(),
        (f"{supervision}.stage_workers", "Connection"): Holder,
        ("daskprs._cluster.remote.transfer", "PIECE_BYTES"): PIECE_BYTES,
        ("daskprs._system.log_cap", "_BLOCK_BYTES"): 1,
        (parts, "get_worker"): _this_worker,
        (parts, "leave_the_threads"): _leave_the_threads,
        (parts, "PeriodicCallback"): _Periodic,
        (parts, "HelperPool"): Helper,
        ("daskprs._output.dataset.part_attempt", "chdir"): in_folder,
        (exchange, "wait"): wait,
        (exchange, "get_address_host"): _host,
        (exchange, "SMALL_BYTES"): 0,
        (shuffle, "PART_BYTES"): 1,
        (shuffle, "PIECE_BYTES"): 1,
        (dealer, "get_worker"): _this_worker,
        (dealer, "get_address_host"): _host,
        (dealer, "leave_the_threads"): _leave_the_threads,
        (dealer, "rejoin"): _rejoin,
        (dealer, "asyncio"): Asyncio,
        (dealer, "os"): OnHost(),
        (dealer, "HelperPool"): KeyHelper,
        (dealer, "usable_cores"): lambda: 4,
        (dealer, "usable_bytes"): lambda: None,
        # It makes a file with a name of chance.
        ("daskprs._inputs.keys.partition_keys", "owner_in"): lambda _: os.geteuid(),
    }
    with replaced(more):
        yield


def _ends_in_s(worker: Worker) -> float | None:
    return None if worker.ends_s is None else worker.ends_s - now().now_s


def _host(address: str) -> str:
    return address.removeprefix("inproc://").partition("/")[0]


class _Monitor:
    """In place of the monitor of a node: its figures are those of no machine."""

    def __init__(self, *_: Any) -> None: ...

    def measure(self) -> NodeUsage:
        """Return the usage."""
        return NodeUsage(now().now_s, *[0] * 12, disks=(), devices=(), agents=(), processes="")


class _Periodic:
    """In place of tornado's periodic callback."""

    def __init__(self, call: Any, every_ms: float) -> None:
        self._call = call
        self._every_s = every_ms / 1000
        self._process = call.__self__._worker.process
        self._is_running = False

    def start(self) -> None:
        """Begin."""
        self._is_running = True
        now().at(self._every_s, self._process, self._run)

    def stop(self) -> None:
        """End."""
        self._is_running = False

    def _run(self) -> None:
        if self._is_running:
            self._call()
            now().at(self._every_s, self._process, self._run)
