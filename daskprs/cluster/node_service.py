"""What the driver asks of a worker besides leases, and how: through the scheduler, as Dask does.

Neither side has to be reachable for the other; the scheduler is, for both. A worker answers under
the name of the job, as long as the job's plugin is registered with it.
"""

from __future__ import annotations

import asyncio
import pickle
from typing import TYPE_CHECKING, Any

from distributed.protocol import to_serialize

from daskprs.cluster.lease import plugin_name

if TYPE_CHECKING:
    from threading import Event

    from distributed import Client

    from daskprs.agent.pool import AgentPool
    from daskprs.agent.site import Mark, Site

CALL_S = 60.0
"""A worker that does not answer within this is given up for this time."""


class Unreachable(Exception):  # noqa: N818 - what it is
    """A worker has not answered."""


class NodeService:
    """Answers for a worker; each call in a thread, since disks may be slow."""

    def __init__(self, site: Site, pool: AgentPool) -> None:
        self._site = site
        self._pool = pool

    async def serve(self, what: str, given: bytes) -> dict[str, Any]:
        """Do what is asked for, and return what came of it."""
        call = getattr(self, f"_{what}")
        result = await asyncio.to_thread(_answer, call, given)
        return {"result": to_serialize(result)}

    def _look(self, output: Mark | None) -> dict[str, Any]:
        """Return where this worker stands, and what it lacks."""
        folder, store = self._site.folder, self._site.store
        return {
            "folder": "" if folder is None else folder.id,
            "store": "" if store is None else store.id,
            "lacks": self._site.lacks(),
            "sees_output": output is None or output.is_seen(),
        }

    def _end(self) -> None:
        """Kill the agents: what they have written is all there will be."""
        self._pool.close()

    def _folder(self, method: str, *given: Any) -> Any:
        """Have the folder of this node do something."""
        return getattr(self._site.store, method)(*given)


def _answer(call: Any, given: bytes) -> Any:
    try:
        return call(*pickle.loads(given))
    except Exception as error:  # noqa: BLE001 - it is raised in the driver
        return error


class NodeCalls:
    """Calls the services of workers; to be used in any thread but Dask's own.

    Parameters
    ----------
    client, job_id
        Of the cluster, and of the job.
    until
        Once this is set, nobody is called any more.

    """

    def __init__(self, client: Client, job_id: str, until: Event | None = None) -> None:
        self._until = until
        self._client = client
        self._name = plugin_name(job_id)

    def __call__(self, worker: str, what: str, *given: Any, within_s: float = CALL_S) -> Any:
        """Return what a worker's service does.

        Raises
        ------
        Unreachable
            When it does not answer, or is gone, or is not to be called any more.

        """
        if self._until is not None and self._until.is_set():
            raise Unreachable(worker)
        message = {"op": self._name, "what": what, "given": to_serialize(pickle.dumps(given))}
        try:
            answers = self._client.sync(
                self._client.scheduler.broadcast,
                msg=message,
                workers=[worker],
                on_error="return_pickle",
                callback_timeout=within_s,
            )
            result = answers[worker]["result"]
        except Exception as error:  # whatever Dask raises on the way
            raise Unreachable(worker) from error
        if isinstance(result, Exception):
            raise result
        return result
