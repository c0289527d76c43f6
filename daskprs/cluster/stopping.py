"""The end of a job that has completed: its agents shut down, on all workers at the same time."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from daskprs.cluster.connect import workers_of
from daskprs.cluster.lease import plugin_name, stop_agents
from daskprs.core.events import AgentChanged, Place

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from distributed import Client, Future

LOOK_EVERY_S = 0.25
STOP_GRACE_S = 30.0
"""Beyond the timeout of `shutdown` itself: kills, stack dumps and a busy cluster take time."""


def stopped(
    client: Client, job_id: str, nodes: Mapping[str, int], timeout_s: float
) -> Iterator[AgentChanged | None]:
    """Let the agents shut down, and yield what they tell, and None while that takes its time.

    A worker that goes meanwhile takes its agents along; nobody waits for its answer.

    Parameters
    ----------
    client
        Of the cluster.
    job_id
        Whose agents.
    nodes
        The workers, by address, and the number of the node that each is on.
    timeout_s
        For `shutdown`.

    """
    until = time.monotonic() + timeout_s + STOP_GRACE_S
    futures = {
        worker: client.submit(
            stop_agents,
            job_id,
            key=(plugin_name(job_id), "stop", number),
            workers=[worker],
            retries=0,
            pure=False,
        )
        for number, worker in enumerate(nodes)
    }
    for worker, future in futures.items():
        done = threading.Event()
        future.add_done_callback(partial(_set, done))
        while not done.wait(LOOK_EVERY_S) and _is_there(client, worker, until):
            yield None
        for event in future.result() if future.status == "finished" else ():
            yield AgentChanged(Place(nodes[worker], event.process), event)


def _is_there(client: Client, worker: str, until: float) -> bool:
    workers = workers_of(client)
    return (workers is None or worker in workers) and time.monotonic() < until


def _set(event: threading.Event, _: Future) -> None:
    event.set()
