"""``processed_mini-batches.csv``: one row for each attempt, written and read back."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from daskprs.core.events import AttemptFailed, MiniBatchesDone
from daskprs.core.outcomes import Status
from daskprs.job_lock import latest_epoch
from daskprs.report.evidence import NO_PROCESS, evidence
from daskprs.report.stamps import Stamps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daskprs.core.events import Event, Place
    from daskprs.core.mini_batch import MiniBatch
    from daskprs.core.outcomes import Failure, Outcome
    from daskprs.job_folder import JobFolder
    from daskprs.report.log_files import LogFiles

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
    """Writes the table. A job may have a million attempts: a row costs a few microseconds."""

    def __init__(self, folder: JobFolder, files: LogFiles) -> None:
        self._folder = folder
        self._file = files.file(folder.attempts, ",".join(COLUMNS) + "\n")
        self._stamps = Stamps("%Y-%m-%dT%H:%M:%S", "+00:00")
        self._run = _last_run(folder)

    def tell(self, event: Event) -> None:
        """Write attempts."""
        match event:
            case MiniBatchesDone(place, done):
                end = f",,{self._detail(final=True, charged=True)}"
                rows = [self._row(place, mini_batch, outcome, end) for mini_batch, outcome in done]
                self._file.write("".join(rows))
            case AttemptFailed(place, mini_batch, outcome, final, charged):
                end = f"{_error(outcome.failure)},{self._detail(final=final, charged=charged)}"
                self._file.write(self._row(place, mini_batch, outcome, end))

    def close(self) -> None:
        """Do nothing: the file is written out with the others."""

    def _row(self, place: Place, mini_batch: MiniBatch, outcome: Outcome, end: str) -> str:
        label = _string(mini_batch.label).replace('"', '""')
        more = self._more(place, mini_batch, outcome.failure)
        return (
            f"{outcome.index},{outcome.attempt},{place.node},{place.process or NO_PROCESS},"
            f"{self._stamps.at(outcome.started)},{outcome.total},{outcome.succeeded},"
            f"{outcome.failed},{outcome.elapsed_s:.6f},{outcome.cpu_s:.6f},{outcome.run_s:.6f},"
            f'{outcome.status.value},{end}""label"": {label}{more}}}"\n'
        )

    def _detail(self, *, final: bool, charged: bool) -> str:
        """Return how the last cell begins, which is the same for many rows."""
        return (
            f'"{{""run"": {self._run}, ""final"": {"true" if final else "false"}, '
            f'""charged"": {"true" if charged else "false"}, '
        )

    def _more(self, place: Place, mini_batch: MiniBatch, failure: Failure | None) -> str:
        """Return what only some have to tell: their key; their error, and where more of it is."""
        told: dict[str, Any] = {}
        if mini_batch.partition_key:
            told["partition_key"] = dict(mini_batch.partition_key)
        if failure is not None:
            told["error"] = str(failure._replace(message=failure.message[:MESSAGE_CHARS]))
            told["log"] = str(
                evidence(failure, place, self._folder).log.relative_to(self._folder.logs)
            )
        return f", {_encode(told)[1:-1]}".replace('"', '""') if told else ""


def _error(failure: Failure | None) -> str:
    """Return the error on one line: a row without line breaks can be told from a torn one."""
    if failure is None:
        return ","
    return f"{_quoted(_one_line(failure.kind))},{_quoted(_one_line(failure.message))}"


def _one_line(text: str) -> str:
    return " ".join(text[:MESSAGE_CHARS].split())


def _quoted(text: str) -> str:
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


class FailedRow(NamedTuple):
    """A mini-batch that was given up."""

    mini_batch: int
    label: str
    """Which part of the input it is: path and range, or keys."""
    items: int
    log: str
    """The file to look into, relative to the log folder."""
    error: str
    """The last one: where there is little room, pandas leaves out columns in the middle."""


def failed_rows(folder: JobFolder) -> Iterator[FailedRow]:
    """Yield what was given up in the last run of a job, in that order, from the table.

    What an earlier run gave up was run again by a resume, and counts with that.
    """
    if not folder.attempts.exists():
        return
    run = _last_run(folder)
    with folder.attempts.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["Status"] == Status.RUN_DONE:
                continue
            detail = _read(row["Mini-batch Detail"])
            if detail.get("final") and detail.get("run") == run:
                yield FailedRow(
                    int(row["Mini-batch Id"]),
                    detail.get("label", ""),
                    int(row["Total"]),
                    detail.get("log", ""),
                    detail.get("error", ""),
                )


def _last_run(folder: JobFolder) -> int:
    """Return the epoch of the last run; one without a journal was refused before it began."""
    epoch = latest_epoch(folder)
    while epoch > 0 and not folder.journal(epoch).exists():
        epoch -= 1
    return epoch


def _read(detail: str | None) -> dict[str, Any]:
    """Return the detail of a row; nothing of the last one where a killed driver left it torn."""
    try:
        found: dict[str, Any] = json.loads(detail or "{}")
    except ValueError:
        return {}
    return found
