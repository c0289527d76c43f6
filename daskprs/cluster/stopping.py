"""The end of a job that has completed: its agents shut down, on all workers at the same time."""

from __future__ import annotations

import time
from queue import Empty
from typing import TYPE_CHECKING

from daskprs.core.events import AgentChanged, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from queue import SimpleQueue

    from daskprs.cluster.news import AgentsStopped

LOOK_EVERY_S = 0.25
STOP_GRACE_S = 30.0
"""Beyond the timeout of `shutdown` itself: kills, stack dumps and a busy cluster take time."""


def stopped(
    nodes: Mapping[str, int],
    answers: SimpleQueue[AgentsStopped],
    timeout_s: float,
    is_there: Callable[[str], bool],
) -> Iterator[AgentChanged | None]:
    """Yield the events of agents that shut down, and None while that takes its time.

    A worker that goes meanwhile takes its agents along; its answer is not awaited.

    Parameters
    ----------
    nodes
        The workers, by address, and the number of the node that each is on.
    answers
        Gets an entry for each worker whose agents have shut down.
    timeout_s
        For `shutdown`.
    is_there
        Says of a worker whether it is to be waited for.

    """
    until = time.monotonic() + timeout_s + STOP_GRACE_S
    left = dict(nodes)
    while left and time.monotonic() < until:
        try:
            worker, events = answers.get(timeout=LOOK_EVERY_S)
        except Empty:
            left = {worker: node for worker, node in left.items() if is_there(worker)}
            yield None
            continue
        left.pop(worker, None)
        for event in events:
            yield AgentChanged(Place(nodes[worker], event.process), event)
