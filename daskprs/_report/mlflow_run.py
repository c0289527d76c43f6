"""MLflow: the counts and the result of a job, in the run that is active in its caller."""

from __future__ import annotations

import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from mlflow import MlflowClient
from mlflow.entities import Metric, RunTag

from daskprs._core.events import JobEnded, JobStarted, ProgressReported

if TYPE_CHECKING:
    from daskprs._core.events import Event, Progress
    from daskprs._folders.job_folder import JobFolder

EVERY_S = 10.0
CLOSE_S = 10.0
"""Seconds that the end of a job waits for a server that does not answer."""


class MlflowRun:
    """Logs metrics every ten seconds and at the end, and tags that name the job and its result.

    A thread speaks to the server, which may be slow. Where it fails, the job goes on without.
    """

    def __init__(self, folder: JobFolder, run_id: str) -> None:
        self._folder = folder
        self._run_id = run_id
        self._client = MlflowClient()
        self._left: SimpleQueue[tuple[list[Metric], list[RunTag]] | None] = SimpleQueue()
        self._error: Exception | None = None
        self._due_s = EVERY_S
        self._thread = threading.Thread(target=self._log, name="daskprs-mlflow", daemon=True)
        self._thread.start()

    def tell(self, event: Event) -> None:
        """Log what an event says of the job as a whole."""
        if self._error is not None:
            raise self._error
        match event:
            case JobStarted(script=script):
                self._put(job_dir=str(self._folder), script=script, status="Running")
            case ProgressReported(standing=standing, elapsed_s=elapsed_s):
                if elapsed_s >= self._due_s:
                    self._due_s = elapsed_s + EVERY_S
                    self._put(_figures(standing, elapsed_s))
            case JobEnded(ending, standing, elapsed_s, output):
                figures = _figures(standing, elapsed_s)
                self._put(figures, status=ending.status.value, reason=ending.reason, output=output)

    def close(self) -> None:
        """Log what is left; raise the error of the server, if there was one."""
        self._left.put(None)
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            msg = f"MLflow has not answered for {CLOSE_S:g} s"
            raise TimeoutError(msg)
        if self._error is not None:
            raise self._error

    def _put(self, figures: dict[str, float] | None = None, **tags: str) -> None:
        now_ms, step = int(time.time() * 1000), 0
        metrics = [
            Metric(f"daskprs/{name}", value, now_ms, step)
            for name, value in (figures or {}).items()
        ]
        given = [RunTag(f"daskprs.{name}", value) for name, value in tags.items()]
        self._left.put((metrics, given))

    def _log(self) -> None:
        for metrics, tags in iter(self._left.get, None):
            try:
                self._client.log_batch(self._run_id, metrics=metrics, tags=tags)
            except Exception as error:  # noqa: BLE001 - whatever a server does to its client
                self._error = error
                return


def _figures(standing: Progress, elapsed_s: float) -> dict[str, Any]:
    counts = {"mini_batches": standing.mini_batches, "items": standing.items}
    figures = {
        f"{name}_{part}": getattr(count, part)
        for name, count in counts.items()
        for part in ("succeeded", "failed")
    }
    return {**figures, "elapsed_s": elapsed_s}
