"""The timeout of a job that is prepared on a cluster without workers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from daskprs.errors import DaskprsError, Option

if TYPE_CHECKING:
    from distributed import Client

LOOK_EVERY_S = 1.0


class WorkerTimer:
    """Counts seconds without a worker; the ledger does so once the job is at work.

    Without a timeout, it waits for ever.
    """

    def __init__(self, client: Client, timeout_s: float | None) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._seen_s = self._looked_s = time.monotonic()

    def check(self) -> None:
        """Raise `DaskprsError` when there has been no worker for too long."""
        now_s = time.monotonic()
        if self._timeout_s is None or now_s - self._looked_s < LOOK_EVERY_S:
            return
        self._looked_s = now_s
        if self._client.nthreads():
            self._seen_s = now_s
        elif now_s - self._seen_s > self._timeout_s:
            seconds = self._timeout_s
            option = Option("no_workers_timeout", int(seconds) if seconds % 1 == 0 else seconds)
            raise DaskprsError("there was no worker for more than ", option, " s.")
