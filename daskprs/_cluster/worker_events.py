"""Events about a job's workers, sent by the workers themselves or by the scheduler."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from daskprs._core.events import SlotState
    from daskprs._core.lease import AgentEvent
    from daskprs._core.usage import NodeUsage


class Heartbeat(NamedTuple):
    """A worker's heartbeat, twice a second: its resources and the states of its slots."""

    worker: str
    """The worker's address."""
    life: str
    """A random id, new after a restart at the same address."""
    host: str
    threads: int
    """Dask threads that the worker declares."""
    cores: int
    """Cores that the worker's process may use."""
    gpus: float
    """Units of the resource ``GPU`` that the worker declares."""
    devices: tuple[str, ...] | None
    """Devices that the worker's process may use; None where only `gpus` gives their number."""
    states: dict[int, SlotState]
    """The slots' states, by slot number."""
    idle: bool = True
    """Whether a Dask thread is free and the worker begins tasks (it is not paused)."""
    waiting: tuple[int, ...] = ()
    """Ids of the leases that have waited a second for a thread and lack nothing else."""
    lacking: int = 0
    """Number of leases that have waited a second for a resource that other tasks hold."""
    ends_in_s: float | None = None
    """Seconds until the worker closes by itself, if it was started for a time."""
    uuids: tuple[str, ...] = ()
    """What tells each of the devices from all others of the host; empty: their names do."""


class WorkersFound(NamedTuple):
    """The scheduler has these workers when the job comes to the cluster."""

    workers: tuple[str, ...]
    """The workers' addresses."""


class WorkerLost(NamedTuple):
    """The scheduler has removed a worker."""

    worker: str
    expected: bool
    """Whether the worker was asked to close."""
    leases: frozenset[int]
    """Ids of the leases that it had: it may have begun with them."""


class WorkerLeaving(NamedTuple):
    """A worker announces that it closes on request, which the scheduler does not always learn."""

    worker: str


class WorkerRefused(NamedTuple):
    """A worker cannot run agents of the job."""

    worker: str
    why: str


class AgentsStopped(NamedTuple):
    """All agents of a worker have shut down."""

    worker: str
    events: tuple[AgentEvent, ...]


class StagesChanged(NamedTuple):
    """Stage processes of a worker have started, come up or ended; they work for other nodes."""

    node: int
    host: str
    """The name of the machine."""
    events: tuple[AgentEvent, ...]


class NodeMeasured(NamedTuple):
    """A worker has measured its node and its agents."""

    worker: str
    usage: NodeUsage | str
    """An error where that failed; then it measures no more."""


class PermitsFailed(NamedTuple):
    """A worker gets its agents no more permits, for an error of daskprs: their calls would wait."""

    worker: str
    traceback: str


class LeaseAnswered(NamedTuple):
    """A worker was asked to give a lease back, and has answered or cannot be reached."""

    lease_id: int
    withdrawn: bool
    """Whether the lease has not begun on the worker, and never will."""


WorkerEvent = (
    Heartbeat
    | WorkersFound
    | WorkerLost
    | WorkerLeaving
    | WorkerRefused
    | AgentsStopped
    | StagesChanged
    | NodeMeasured
    | PermitsFailed
    | LeaseAnswered
)


def packed(news: WorkerEvent) -> bytes:
    """Return an event as bytes, since Dask's messages turn named tuples into plain tuples."""
    return pickle.dumps(news)


def unpacked(message: bytes) -> WorkerEvent:
    """Return the event in a message."""
    news: WorkerEvent = pickle.loads(message)
    return news
