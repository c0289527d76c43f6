"""The answers to a supervisor: whether the service lives, and whether it can take jobs now."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Literal

from fastapi import APIRouter
from fastapi.responses import Response  # noqa: TC002 - FastAPI looks at it
from pydantic import BaseModel

from daskprs._serve.bodies import JSON, ErrorAnswer
from daskprs._serve.http_errors import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from daskprs._serve.job_queue import JobQueue

PROBE_BYTES = 4096
PROBE_S = 0.5
"""Seconds to wait for the disk."""
PROBE_EVERY_S = 1.0
FAILURES = {
    400: "The request is malformed.",
    408: "The body came too slowly.",
    413: "It has a body.",
}


class HealthAnswer(BaseModel):
    """The service lives, or takes jobs."""

    status: Literal["alive", "ready"]


class Health:
    """The paths `/health` and `/ready`, which need no token and tell nothing else.

    Neither waits for the threads that answer other requests, nor for a disk that hangs.
    """

    def __init__(self, folder: Path, queue: JobQueue) -> None:
        self._folder = folder
        self._queue = queue
        self._thread = ThreadPoolExecutor(1, "daskprs-ready")
        self._probe: asyncio.Future[bool] | None = None
        self._probe_again_s = 0.0
        self.router = APIRouter()
        self._add("/health", self.health, FAILURES)
        self._add("/ready", self.ready, {**FAILURES, 503: "The service takes no jobs now."})

    def _add(self, path: str, act: Callable[..., Any], failures: dict[int, str]) -> None:
        self.router.add_api_route(
            path,
            act,
            responses={
                status: {"model": ErrorAnswer, "description": text}
                for status, text in failures.items()
            },
            operation_id=act.__name__,
            response_model=HealthAnswer,
        )

    async def health(self) -> Response:
        """Say that the service answers."""
        return JSON(HealthAnswer(status="alive"))

    async def ready(self) -> Response:
        """Say whether the service takes jobs: it can write to its folder, and is not ending."""
        if self._queue.is_draining or not await self._can_write():
            message = "The service takes no jobs now."
            raise Refusal(503, "NotReady", message, headers={"Retry-After": "5"})
        return JSON(HealthAnswer(status="ready"))

    async def _can_write(self) -> bool:
        """Return whether the folder can be written to; look about once a second."""
        loop = asyncio.get_running_loop()
        if self._probe is None or (self._probe.done() and loop.time() > self._probe_again_s):
            self._probe_again_s = loop.time() + PROBE_EVERY_S
            self._probe = loop.run_in_executor(self._thread, self._write)
        try:
            return await asyncio.wait_for(asyncio.shield(self._probe), PROBE_S)
        except TimeoutError:  # the disk hangs
            return False

    def _write(self) -> bool:
        try:
            with TemporaryFile(dir=self._folder) as file:
                file.write(bytes(PROBE_BYTES))
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            return False
        return True
