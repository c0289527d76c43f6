"""Figures of jobs for Prometheus, on the endpoint of the scheduler that they run on.

The driver logs them as Dask's events, which the plugin of its job hears in the scheduler.
"""

from __future__ import annotations

import asyncio
import pickle
import time
from concurrent.futures import wait
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from daskprs._cluster.lost_cluster import lost_cluster_ignored
from daskprs._report.job_figures import figures_of, samples

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from distributed import Client

    from daskprs._core.events import ProgressReported
    from daskprs._report.job_figures import JobFigures

FIGURES = "daskprs-figures"
"""The topic of the events that have figures."""
EVERY_S = 5.0
LAST_S = 2.0
"""Seconds that the end of a job waits until the scheduler has the last figures."""
KEPT_S = 300.0
"""Seconds for which the last figures of a job stay: Prometheus comes by now and then."""


# ---- in the driver ----


class FigureSender:
    """Sends the figures of a job to its scheduler, every five seconds and at the end."""

    def __init__(self, client: Client, job_dir: str, unit: str) -> None:
        self._client = client
        self._job_dir = job_dir
        self._unit = unit
        self._due_s = 0.0
        self._sent: Future[Any] | None = None

    def show(self, event: ProgressReported, *, is_last: bool = False) -> None:
        """Send the figures if that is due, and the scheduler has those before.

        The last ones are sent in any case, after those before.
        """
        is_due = event.elapsed_s >= self._due_s and (self._sent is None or self._sent.done())
        if not (is_due or is_last):
            return
        # Else the last figures of the job could overtake those before, or be dropped while these
        # are on their way.
        if self._sent is not None:
            wait([self._sent], LAST_S)
        self._due_s = event.elapsed_s + EVERY_S
        message = pickle.dumps(figures_of(event, self._job_dir, self._unit))
        with lost_cluster_ignored("to send the figures of the job"):
            self._sent = asyncio.run_coroutine_threadsafe(
                self._client.scheduler.log_event(topic=FIGURES, msg=message),
                self._client.loop.asyncio_loop,
            )
        if is_last and self._sent is not None:
            wait([self._sent], LAST_S)


# ---- in the scheduler ----


def show_figures(message: bytes) -> None:
    """Show the figures of a job from now on, if the package of Prometheus is installed."""
    with suppress(ImportError):
        _collector().show(pickle.loads(message))


@cache
def _collector() -> FigureCollector:
    """Return the collector of this process, known to the endpoint of Dask's scheduler."""
    from prometheus_client import REGISTRY

    collector = FigureCollector()
    REGISTRY.register(collector)
    return collector


class FigureCollector:
    """Gives Prometheus the last figures of each job."""

    def __init__(self) -> None:
        self._shown: dict[str, tuple[float, JobFigures]] = {}
        """By job folder, with the time at which they came."""

    def show(self, figures: JobFigures) -> None:
        """Take the figures of a job."""
        self._shown[figures.job_dir] = time.monotonic(), figures

    def collect(self) -> Iterator[Any]:
        """Yield a metric for each kind of figure; jobs that have been silent are left out."""
        from prometheus_client.core import GaugeMetricFamily

        since = time.monotonic() - KEPT_S
        self._shown = {path: one for path, one in self._shown.items() if one[0] >= since}
        gauges: dict[str, Any] = {}

        for _, figures in self._shown.values():
            for name, help_, value, labels in samples(figures):
                gauge = gauges.setdefault(name, GaugeMetricFamily(name, help_, labels=[*labels]))
                gauge.add_metric([*labels.values()], value)
        yield from gauges.values()
