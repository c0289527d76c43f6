"""The calls by which a worker has others preprocess mini-batches: from worker to worker."""

from __future__ import annotations

import asyncio
import pickle
from typing import TYPE_CHECKING, Any

from distributed.protocol import to_serialize

if TYPE_CHECKING:
    from concurrent.futures import Future

    from distributed import Worker

    from daskprs._agent.supervision.far_stages import Preprocessed
    from daskprs._core.mini_batch import Assigned
    from daskprs._core.stages import StageHost

LOOK_EVERY_S = 5.0
"""Seconds after which a worker that has not answered yet is asked whether it is there."""
SILENT_S = 30.0
"""Seconds in which it has to say so: Dask, too, waits as long for a worker that is cut off."""


class StageCalls:
    """Has other workers of a job preprocess mini-batches, from any thread but Dask's own.

    `service` is the name of the job's service on each worker.
    """

    def __init__(self, worker: Worker, service: str) -> None:
        self._worker = worker
        self._service = service

    def __call__(self, host: StageHost, assigned: Assigned) -> Future[Preprocessed]:
        """Ask a worker; the answer may be cancelled, and ends with an error if there is none."""
        loop = self._worker.loop.asyncio_loop
        return asyncio.run_coroutine_threadsafe(self._ask(host, assigned), loop)

    async def _ask(self, host: StageHost, assigned: Assigned) -> Preprocessed:
        other = self._worker.rpc(host.worker)
        given = to_serialize(pickle.dumps((host, assigned)))
        asked = asyncio.ensure_future(getattr(other, self._service)(what="preprocess", given=given))
        try:
            while not (await asyncio.wait([asked], timeout=LOOK_EVERY_S))[0]:
                # A worker that is stopped, or cut off, never answers, and its connection stays.
                await asyncio.wait_for(other.echo(data=""), SILENT_S)
            answer: Any = asked.result()["result"]
        finally:
            asked.cancel()
        if isinstance(answer, Exception):
            raise answer
        made: Preprocessed = answer
        return made
