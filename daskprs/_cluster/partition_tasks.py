"""The tasks of a partition on a cluster, and those that follow its data."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dask.typing import Key
    from distributed import Client, Future, Scheduler

    from daskprs._inputs.collections.partition_graph import TaskGroup

OWN_PLACE = {"workers", "resources"}
"""Annotations by which the user says where a task may run."""


def submit_group(
    client: Client,
    group: TaskGroup,
    held: Mapping[Key, Future],
    tail: Mapping[Key, Any],
    wanted: Sequence[Key],
    workers: Sequence[str] = (),
) -> dict[Key, Future]:
    """Submit the tasks of a partition, and those that follow it; return the wanted futures.

    The futures of `group.uses` have to be `held` until the tasks are done; raise `ValueError` if
    one is not. When a future is released just after this call, the scheduler handles the release
    before it handles the graph. Any thread may call, that of a task included.

    The tasks of the `tail` refer to `group.output`. They run where the partition lies, and go
    before the tasks of other partitions. The keys that are `wanted` include those of `group.keeps`.
    The `workers` compute the partition, as long as they exist; tasks for which the user gave
    workers or resources are not bound to them.
    """
    if missing := group.uses - held.keys():
        msg = f"partition {group.number} needs the futures of {sorted(map(str, missing))}."
        raise ValueError(msg)
    annotations = _annotations(group, tail, workers)
    layer = MaterializedLayer({**group.tasks, **tail}, annotations=annotations)
    graph = HighLevelGraph({"partition": layer}, {"partition": set()})
    # Dask gives all calls within `fifo_timeout` (60 s by default) one priority. With 0, the earlier
    # partitions go first.
    futures = client.get(graph, list(wanted), sync=False, fifo_timeout=0)
    return dict(zip(wanted, futures, strict=True))


def _annotations(
    group: TaskGroup, tail: Mapping[Key, Any], workers: Sequence[str]
) -> dict[str, Any]:
    """Return each kind of annotation as a function of the key, as a layer has them."""
    found: defaultdict[str, dict[Key, Any]] = defaultdict(dict)
    for key, own in group.annotations.items():
        for kind, value in own.items():
            found[kind][key] = value
    if workers:
        unbound = [
            key for key in group.tasks if OWN_PLACE.isdisjoint(group.annotations.get(key, ()))
        ]
        if len(unbound) == len(group.tasks):
            unbound += tail  # a partition that stands in the graph itself has no other task
        found["workers"] |= dict.fromkeys(unbound, tuple(workers))
        found["allow_other_workers"] |= dict.fromkeys(unbound, True)
    first = max([0, *found["priority"].values()]) + 1
    found["priority"] |= dict.fromkeys(tail, first)
    return {kind: values.get for kind, values in found.items()}


def unmet_need(name: str, *, dask_scheduler: Scheduler) -> str:
    """Return what a partition of a job waits for that no worker has, or '' (on the scheduler).

    Parameters
    ----------
    name
        The first part of the keys of the job's partitions.
    dask_scheduler
        The scheduler, passed by Dask.

    """
    for task in dask_scheduler.unrunnable:
        needing, left = {task}, [task]
        while left:
            new = left.pop().dependents - needing
            needing |= new
            left += new
        keys = [one.key for one in needing if isinstance(one.key, tuple)]
        numbers = [key[1] for key in keys if key[0] == name]
        asked = task.resource_restrictions or {}
        needs = [f"the resource {resource}={amount:g}" for resource, amount in asked.items()]
        if places := {*(task.worker_restrictions or ()), *(task.host_restrictions or ())}:
            needs.append(f"the address {' or '.join(sorted(places))}")
        if numbers and needs:
            return (
                f"partition {min(numbers)} waits for a worker with {' and '.join(needs)}, and "
                "there is none. Start one, or leave out the annotation of the collection"
            )
    return ""
