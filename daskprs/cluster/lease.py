"""The Dask task: one lease, worked on in the worker that it was sent to, and what comes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distributed import get_worker, secede

from daskprs.cluster.connect import workers_of
from daskprs.core.outcomes import Failure

if TYPE_CHECKING:
    from distributed import Client, Future

    from daskprs.core.lease import AgentEvent, Lease, LeaseReturned

FETCH_S = 30.0
"""What a lease brings back is some megabytes: where they take longer, is the worker still there?"""


def run_lease(lease: Lease) -> LeaseReturned:
    """Run a lease in an agent of this worker, outside of the worker's own thread pool.

    Slots are the dispatcher's: neither the worker's thread count nor another job's tasks hold a
    lease up, so it leaves the pool at once.
    """
    pool = get_worker().plugins[plugin_name(lease.job_id)].pool
    secede()
    returned: LeaseReturned = pool.run(lease)
    return returned


def stop_agents(job_id: str) -> tuple[AgentEvent, ...]:
    """Let this worker's agents of a job shut down, and return what they have to tell."""
    pool = get_worker().plugins[plugin_name(job_id)].pool
    secede()
    told: tuple[AgentEvent, ...] = pool.stop()
    return told


def fetched(future: Future, client: Client, worker: str) -> LeaseReturned | None:
    """Return what a lease brought back; None if its worker went before that was fetched.

    Dask would wait for the task to be run again, by the worker that it was sent to.
    """
    while True:
        try:
            returned: LeaseReturned = future.result(FETCH_S)
        except TimeoutError:
            workers = workers_of(client)
            if workers is not None and worker not in workers:
                future.cancel()
                return None
        else:
            future.release()
            return returned


def failure_of_lease(future: Future) -> Failure:
    """Return the error that a lease ended with, which is none of the script."""
    error = future.exception()
    return Failure(type(error).__name__, str(error))


def lease_key(lease: Lease) -> tuple[str, int, int]:
    """Return the key of the task: the job, the lease, and the slot that it occupies.

    A tuple, since Dask groups tasks by the first part of the key, and a group for each task would
    defeat its queuing.
    """
    return plugin_name(lease.job_id), lease.id, lease.slot


def plugin_name(job_id: str) -> str:
    """Return the name under which a job's agents are registered with the workers."""
    return f"daskprs-{job_id}"


def logs_topic(job_id: str) -> str:
    """Return the topic on which workers that go tell the last of their agents' logs."""
    return f"daskprs-{job_id}-logs"


def states_topic(job_id: str) -> str:
    """Return the topic on which workers tell what their slots are doing."""
    return f"daskprs-{job_id}-slots"
