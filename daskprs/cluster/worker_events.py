"""What a job hears of its workers, from themselves and from the scheduler."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from daskprs.core.events import SlotState
    from daskprs.core.lease import AgentEvent


class Heartbeat(NamedTuple):
    """A worker tells twice a second that it lives, what it has, and what its slots are doing."""

    worker: str
    """Its address."""
    life: str
    """Another one after a restart at the same address."""
    host: str
    threads: int
    """How many it declares."""
    cores: int
    """How many its process may use."""
    gpus: float
    """How many of the resource ``GPU`` it declares."""
    devices: tuple[str, ...] | None
    """The devices that its process may use; None where nothing but `gpus` says how many."""
    states: dict[int, SlotState]
    """By the number of the slot."""
    idle: bool = True
    """Whether one of its Dask threads is free, and the worker begins tasks (it is not paused)."""
    waiting: tuple[int, ...] = ()
    """Ids of the leases that have waited a second for a thread, and for nothing else."""


class WorkersFound(NamedTuple):
    """The scheduler has these workers when the job comes to the cluster."""

    workers: tuple[str, ...]
    """Their addresses."""


class WorkerLost(NamedTuple):
    """The scheduler has removed a worker."""

    worker: str
    expected: bool
    """It was told to go."""


class WorkerLeaving(NamedTuple):
    """A worker that was told to go says so: the scheduler itself does not hear of each of them."""

    worker: str


class WorkerRefused(NamedTuple):
    """A worker cannot run agents of the job."""

    worker: str
    why: str


class AgentsStopped(NamedTuple):
    """All agents of a worker have shut down."""

    worker: str
    events: tuple[AgentEvent, ...]


class LeaseAnswered(NamedTuple):
    """A worker was asked to give a lease back, and has answered or cannot be reached."""

    lease_id: int
    withdrawn: bool
    """The lease has not begun, and never will there."""


WorkerEvent = (
    Heartbeat
    | WorkersFound
    | WorkerLost
    | WorkerLeaving
    | WorkerRefused
    | AgentsStopped
    | LeaseAnswered
)


def packed(news: WorkerEvent) -> bytes:
    """Return news as Dask passes them on: its messages turn named tuples into plain ones."""
    return pickle.dumps(news)


def unpacked(message: bytes) -> WorkerEvent:
    """Return news that came by a message."""
    news: WorkerEvent = pickle.loads(message)
    return news
