"""The end of a job that has completed: its agents shut down, on all workers at the same time."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from daskprs.core.events import AgentChanged, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from distributed import Future

    from daskprs.cluster.session import Session

LOOK_EVERY_S = 0.25
STOP_GRACE_S = 30.0
"""Beyond the timeout of `shutdown` itself: kills, stack dumps and a busy cluster take time."""


def stopped(
    session: Session, nodes: Mapping[str, int], timeout_s: float, is_there: Callable[[str], bool]
) -> Iterator[AgentChanged | None]:
    """Let the agents shut down, and yield what they tell, and None while that takes its time.

    A worker that goes meanwhile takes its agents along; nobody waits for its answer.

    Parameters
    ----------
    session
        Whose agents.
    nodes
        The workers, by address, and the number of the node that each is on.
    timeout_s
        For `shutdown`.
    is_there
        Says of a worker whether it is to be waited for.

    """
    until = time.monotonic() + timeout_s + STOP_GRACE_S
    futures = {worker: session.stop_agents(worker, number) for number, worker in enumerate(nodes)}
    for worker, future in futures.items():
        done = threading.Event()
        future.add_done_callback(partial(_set, done))
        while not done.wait(LOOK_EVERY_S) and is_there(worker) and time.monotonic() < until:
            yield None
        for event in future.result() if future.status == "finished" else ():
            yield AgentChanged(Place(nodes[worker], event.process), event)


def _set(event: threading.Event, _: Future) -> None:
    event.set()
