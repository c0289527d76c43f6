"""The Dask task of a lease, run by the lease's worker, and the retrieval of its result."""

from __future__ import annotations

import asyncio
from concurrent.futures import CancelledError, wait
from typing import TYPE_CHECKING

from distributed import get_worker
from distributed.metrics import context_meter

from daskprs._cluster.thread_pool import leave_the_threads
from daskprs._core.outcomes import Failure
from daskprs._system.scarcity import ELSEWHERE, explain, lacks_a_thread
from daskprs.errors import AgentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed import Client, Future

    from daskprs._cluster.staged_in_use import OnNode, StagedInUse
    from daskprs._core.lease import Lease, LeaseReturned

IN_THIS_PROCESS = "inproc://"
LOOK_EVERY_S = 0.5
"""Seconds between checks for the worker while a lease's result, some megabytes, is fetched."""


def run_lease(job: str, lease: Lease, staged: dict[int, OnNode]) -> LeaseReturned:
    """Run a lease in an agent of this worker, outside of the worker's own thread pool.

    The dispatcher manages the slots. Neither the worker's thread count nor another job's tasks
    may hold up a lease, so it leaves the pool at once. `staged` has the partitions of a collection
    that the lease needs, by number: Dask has brought them to this worker.
    """
    worker = get_worker()
    task = worker.state.tasks.get(lease_key(job, lease))
    # Where the pool can start no thread for a task, Dask calls that an error, though the call is in
    # the queue of the pool. Another thread may begin it later.
    if task is None or task.state == "error":
        msg = "the worker has given this lease up already"
        raise AgentError(msg)
    pool = worker.plugins[job].pool
    try:
        leave_the_threads()
    except RuntimeError as error:
        msg = f"the worker could not start a thread for a lease: {error}. {explain(error)}"
        raise AgentError(msg.rstrip()) from error
    partitions: StagedInUse = worker.plugins[job].partitions
    lease = partitions.placed(lease, staged)
    returned: LeaseReturned = pool.run(lease)
    partitions.drop(lease, returned)
    _meter(returned, pool.job.unit)
    return returned


def _meter(returned: LeaseReturned, unit: str) -> None:
    """Add the seconds in `run`, and the rows or files that succeeded, to Dask's own figures."""
    run_s, succeeded = 0.0, 0
    for results in returned.results:
        run_s += sum(results.outcomes.column("run_s"))
        succeeded += sum(results.outcomes.column("succeeded"))
    if returned.results:
        context_meter.digest_metric("run", run_s, "seconds")
        context_meter.digest_metric("run", succeeded, f"{unit}s")


def fetched(future: Future, client: Client, is_there: Callable[[], bool]) -> LeaseReturned | None:
    """Return the result of a lease; None if its worker went before the result was fetched.

    Dask itself would wait until the same worker runs the task again.
    """
    while True:
        gathering = asyncio.run_coroutine_threadsafe(
            client.gather(future, asynchronous=True), client.loop.asyncio_loop
        )
        while not wait([gathering], LOOK_EVERY_S).done:
            if not is_there():
                gathering.cancel()
                future.cancel()
                return None
        try:
            returned: LeaseReturned = gathering.result()
        except CancelledError:
            return None
        except OSError:  # a connection was cut or ran out of time: both ends may still be there
            if is_there():
                continue
            future.cancel()
            return None
        future.release()
        return returned


def failure_of_lease(future: Future, worker: str) -> Failure:
    """Return the error of daskprs or Dask with which a lease ended on a worker."""
    error = future.exception()
    if not lacks_a_thread(error):
        return Failure(type(error).__name__, str(error))
    limit = explain(error) if worker.startswith(IN_THIS_PROCESS) else ELSEWHERE
    return Failure("AgentError", f"{worker} could not start a thread for a lease: {error}. {limit}")


def lease_key(job: str, lease: Lease) -> tuple[str, int, int]:
    """Return the key of the task: the job, the lease, and the slot that it occupies.

    The key is a tuple, since Dask groups tasks by its first part, and one group for each task
    would defeat Dask's queuing.
    """
    return job, lease.id, lease.slot
