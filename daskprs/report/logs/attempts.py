"""``processed_mini-batches.csv``: one row for each attempt."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from daskprs.core.columnar import ColumnBatch
from daskprs.core.events import AttemptFailed, JobStarted, MiniBatchesDone
from daskprs.folders.job_lock import begun_epochs
from daskprs.report.evidence import NO_PROCESS, evidence
from daskprs.report.humanize import Stamps
from daskprs.report.logs.attempt_cells import AttemptCells

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daskprs.core.events import Event, Place
    from daskprs.core.mini_batch import MiniBatch
    from daskprs.core.outcomes import Failure, Outcome
    from daskprs.folders.job_folder import JobFolder
    from daskprs.report.logs.log_files import LogFiles

COLUMNS = (
    "Mini-batch Id",
    "Picked Count",
    "Node Id",
    "Process",
    "Process Start Time",
    "Total",
    "Succeeded",
    "Failed",
    "Elapsed Seconds",
    "Process Seconds",
    "Run Method Seconds",
    "Status",
    "Error Category",
    "Error Message",
    "Mini-batch Detail",
)
MESSAGE_CHARS = 2_000
_string = json.encoder.encode_basestring_ascii
_encode = json.JSONEncoder(default=str).encode


class AttemptTable:
    """Writes the table; a row costs microseconds, since a job may have a million attempts."""

    def __init__(
        self, folder: JobFolder, files: LogFiles, cells: AttemptCells | None = None
    ) -> None:
        self._folder = folder
        self._cells = cells or AttemptCells()
        self._file = files.file(folder.attempts, ",".join(COLUMNS) + "\n")
        self._stamps = Stamps("%Y-%m-%dT%H:%M:%S", "+00:00")
        self._run = _last_run(folder)

    def tell(self, event: Event) -> None:
        """Write attempts."""
        match event:
            case JobStarted():
                self._run = _last_run(self._folder)
            case MiniBatchesDone(place, mini_batches, outcomes):
                end = f",,{self._detail(final=True, charged=True)}"
                details = [self._told(place, mini_batch) for mini_batch in mini_batches]
                self._write(place, outcomes, end, details)
            case AttemptFailed(place, mini_batch, outcome, final, charged):
                end = f"{_error(outcome.failure)},{self._detail(final=final, charged=charged)}"
                detail = self._told(place, mini_batch, outcome.failure)
                self._write(place, ColumnBatch([outcome]), end, [detail])

    def close(self) -> None:
        """Do nothing: `LogFiles` flushes the file."""

    def _write(
        self, place: Place, outcomes: ColumnBatch[Outcome], end: str, details: Sequence[str]
    ) -> None:
        where, stamp = f"{place.node},{place.process or NO_PROCESS}", self._stamps.at
        rows = [
            f"{index},{attempt},{where},{stamp(started)},{total},{succeeded},{failed},"
            f'{elapsed_s},{cpu_s},{run_s},{status},{end}{detail}}}"\n'
            for (
                (
                    index,
                    attempt,
                    started,
                    total,
                    succeeded,
                    failed,
                    elapsed_s,
                    cpu_s,
                    run_s,
                    status,
                ),
                detail,
            ) in zip(self._cells.of(outcomes), details, strict=True)
        ]
        self._file.write("".join(rows))

    def _detail(self, *, final: bool, charged: bool) -> str:
        """Return the beginning of the last cell, which is the same for many rows."""
        return (
            f'"{{""run"": {self._run}, ""final"": {"true" if final else "false"}, '
            f'""charged"": {"true" if charged else "false"}, '
        )

    def _told(self, place: Place, mini_batch: MiniBatch, failure: Failure | None = None) -> str:
        """Return the rest of the last cell: the label, the error, and the log with its details."""
        label = f'"label": {_string(mini_batch.label)}'.replace('"', '""')
        told: dict[str, Any] = {}
        if mini_batch.partition_key:
            told["partition_key"] = dict(mini_batch.partition_key)
        if failure is not None:
            log = evidence(failure, place, self._folder).log
            told["error"] = str(failure._replace(message=failure.message[:MESSAGE_CHARS]))
            told["log"] = str(log.relative_to(self._folder.logs))
        return label + (f", {_encode(told)[1:-1]}".replace('"', '""') if told else "")


def _error(failure: Failure | None) -> str:
    """Return the error on one line, so that a torn row can be distinguished from a whole one."""
    if failure is None:
        return ","
    return f"{_quoted(_one_line(failure.kind))},{_quoted(_one_line(failure.message))}"


def _one_line(text: str) -> str:
    return " ".join(text[:MESSAGE_CHARS].split())


def _quoted(text: str) -> str:
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def _last_run(folder: JobFolder) -> int:
    """Return the epoch of the last run; a run without a journal was rejected before it began."""
    return max(begun_epochs(folder), default=0)
