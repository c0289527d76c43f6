"""The file of a job's metrics, in which a node exporter of Prometheus finds them."""

from __future__ import annotations

import logging
import math
import sys
import time
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from daskprs._core.ending import JobStatus
from daskprs._core.events import JobEnded, JobStarted, MessageLogged, ProgressReported
from daskprs._report.job_figures import figures_of, sample, samples
from daskprs._report.log_files import SHARE_OF_TIME
from daskprs._system.atomic_file import whole_file
from daskprs._system.interrupts import Terminated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from os import PathLike

    from daskprs._core.events import Event
    from daskprs._folders.job_folder import JobFolder
    from daskprs._report.job_figures import Sample

LOG = logging.getLogger("daskprs.driver")
EVERY_S = 5.0
RUNNING = "Running"
STATUSES = (RUNNING, *(status.value for status in JobStatus))
ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
"""How a value of a label is written."""


class MetricsFile:
    """Writes the metrics of a job every five seconds, and at its end; the file stays."""

    def __init__(self, folder: JobFolder, path: str | PathLike[str]) -> None:
        self._job_dir = str(folder)
        self._path = Path(path)
        self._status = RUNNING
        self._begun, self._ended = time.time(), math.nan
        self._unit = ""
        self._stood: ProgressReported | None = None
        self._due_s = -math.inf
        self._is_told = False
        """Whether a write that failed was logged."""

    def tell(self, event: Event) -> None:
        """Write the file if that is due; the input may be prepared for hours before progress."""
        match event:
            case JobStarted(unit=unit):
                self._unit = unit
            case ProgressReported():
                self._stood = event
            case JobEnded(ending, standing, elapsed_s):
                waiting = standing.waiting + standing.running  # it was cut short
                standing = standing._replace(running=0, waiting=waiting)
                self._stood = ProgressReported(standing, (), elapsed_s, math.nan)
                self._end(ending.status.value)
                return
            case MessageLogged():
                pass
            case _:
                return
        if time.monotonic() >= self._due_s:
            try:
                self._write()
            except OSError as error:  # the next time may be better: the file must not end here
                self._due_s = time.monotonic() + EVERY_S
                if not self._is_told:
                    LOG.warning("the metrics file %s cannot be written: %s", self._path, error)
                self._is_told = True

    def close(self) -> None:
        """Write how the job ended, if it did before it had begun: what ends it is on its way."""
        if self._status != RUNNING:
            return
        match sys.exception():
            case Terminated():
                self._end(JobStatus.INTERRUPTED.value)
            case KeyboardInterrupt():
                self._end(JobStatus.CANCELED.value)
            case _:
                self._end(JobStatus.FAILED.value)

    def _end(self, status: str) -> None:
        self._status, self._ended = status, time.time()
        self._write()

    def _write(self) -> None:
        begun_s = time.monotonic()
        with whole_file(self._path, durable=False) as file:
            file.write(open_metrics(self._samples()).encode())
        now_s = time.monotonic()
        self._due_s = now_s + max(EVERY_S, (now_s - begun_s) / SHARE_OF_TIME)

    def _samples(self) -> Iterator[Sample]:
        job_dir = self._job_dir
        for status in STATUSES:
            told = "1 for the status of the job, 0 for all others"
            yield sample(job_dir, "status", told, status == self._status, status=status)
        began = "When this run of the job began, in seconds since 1970"
        yield sample(job_dir, "start_timestamp_seconds", began, self._begun)
        ended = "When the job ended, in seconds since 1970"
        yield sample(job_dir, "end_timestamp_seconds", ended, self._ended)
        if self._stood is not None:
            yield from samples(figures_of(self._stood, job_dir, self._unit))


def open_metrics(values: Iterable[Sample]) -> str:
    """Return values as OpenMetrics text; those that are not a number are left out.

    It is Prometheus' older text format as well, which is all that a node exporter reads. So each
    metric is a gauge, without a time of its own.
    """
    lines = []
    known = (one for one in values if not math.isnan(one.value))
    for (name, help_), group in groupby(known, key=lambda one: (one.name, one.help)):
        lines += [f"# TYPE {name} gauge", f"# HELP {name} {help_}."]
        for one in group:
            labels = ",".join(f'{key}="{of.translate(ESCAPES)}"' for key, of in one.labels.items())
            lines.append(f"{name}{{{labels}}} {float(one.value)!r}")
    return "\n".join([*lines, "# EOF", ""])
